#pragma once
// What the header of a JPEG, PNG or WebP file says, without its pixels and without a library.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace flatshard {

enum class ImageKind { jpeg, png, webp };
constexpr auto value_names(ImageKind) { return std::array{"JPEG", "PNG", "WebP"}; }

struct ImageHeader {
  ImageKind kind;
  int64_t width = 0, height = 0;  // as stored, at least 1
  int orientation = 1;            // of exif.h
};

// An Error if the file is of another kind, if its header is damaged or incomplete, or if it is what no model
// is trained on: an animation, a JPEG in CMYK or of more than 8 bits. The text follows the name of the file:
// "is an animation: ...".
ImageHeader read_image_header(std::span<const std::byte> file);

}  // namespace flatshard
