#pragma once
// The header of a JPEG, PNG or WebP file, read without a library and without decoding pixels.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace flatshard {

enum class ImageKind { jpeg, png, webp };
constexpr auto value_names(ImageKind) { return std::array{"JPEG", "PNG", "WebP"}; }

struct ImageHeader {
  ImageKind kind;
  int64_t width = 0, height = 0;  // size as stored, at least 1
  // How to turn the picture upright: 1 is as stored, 2 to 8 are the reflections and quarter turns of EXIF.
  int orientation = 1;
};

// Throws an Error if the file is of another kind, if its header is damaged or incomplete, or if no model is
// trained on such files: animations, JPEGs in CMYK or with more than 8 bits. The text follows the name of the
// file: "is an animation: ...".
ImageHeader read_image_header(std::span<const std::byte> file);

// The decoders of image files: in jpeg_libjpeg.cpp, png_libpng.cpp and webp_libwebp.cpp, or in files that
// refuse if a build lacks the library. These C libraries end a failed call with a jump, never with an
// exception. Each jump ends in the function that made the call, which owns no object. Return (height, width,
// 3) RGB or (height, width, 4) RGB and opacity, as stored: not yet oriented. The file's header has been
// checked, and is of the function's kind.
std::vector<uint8_t> decode_jpeg(std::span<const std::byte> file, const ImageHeader& header);
std::vector<uint8_t> decode_png(std::span<const std::byte> file, const ImageHeader& header);
std::vector<uint8_t> decode_webp(std::span<const std::byte> file, const ImageHeader& header);

}  // namespace flatshard
