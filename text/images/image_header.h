#pragma once
// The header of a JPEG, PNG or WebP file, read without a library and without decoding pixels.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace flatshard {

enum class ImageKind { jpeg, png, webp };
constexpr auto value_names(ImageKind) { return std::array{"JPEG", "PNG", "WebP"}; }

struct ImageHeader {
  ImageKind kind;
  int64_t width = 0, height = 0;  // size as stored, at least 1
  int orientation = 1;            // see exif.h
};

// Throws an Error if the file is of another kind, if its header is damaged or incomplete, or if no model is
// trained on such files: animations, JPEGs in CMYK or with more than 8 bits. The text follows the name of the
// file: "is an animation: ...".
ImageHeader read_image_header(std::span<const std::byte> file);

}  // namespace flatshard
