#pragma once
// Pixels of a kind of file: in jpeg_libjpeg.cpp, png_libpng.cpp and webp_libwebp.cpp, or in files that refuse
// where a build lacks the library. These libraries are in C and end a call by a jump, never by an exception;
// each jump ends in the function that made the call, which owns no object.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/images/image_header.h"

namespace flatshard {

// (height, width, 3) RGB or (height, width, 4) RGB and opacity, as stored: not yet oriented. The file's
// header, which has been checked, is of the function's kind.
std::vector<uint8_t> decode_jpeg(std::span<const std::byte> file, const ImageHeader& header);
std::vector<uint8_t> decode_png(std::span<const std::byte> file, const ImageHeader& header);
std::vector<uint8_t> decode_webp(std::span<const std::byte> file, const ImageHeader& header);

}  // namespace flatshard
