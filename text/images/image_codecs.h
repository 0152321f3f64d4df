#pragma once
// The decoders of image files: in jpeg_libjpeg.cpp, png_libpng.cpp and webp_libwebp.cpp, or in files that
// refuse if a build lacks the library. These C libraries end a failed call with a jump, never with an
// exception. Each jump ends in the function that made the call, which owns no object.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/images/image_header.h"

namespace flatshard {

// Return (height, width, 3) RGB or (height, width, 4) RGB and opacity, as stored: not yet oriented. The
// file's header has been checked, and is of the function's kind.
std::vector<uint8_t> decode_jpeg(std::span<const std::byte> file, const ImageHeader& header);
std::vector<uint8_t> decode_png(std::span<const std::byte> file, const ImageHeader& header);
std::vector<uint8_t> decode_webp(std::span<const std::byte> file, const ImageHeader& header);

}  // namespace flatshard
