#pragma once
// Pictures in files: JPEG, PNG and WebP become 8-bit RGB as it is to be seen, equal to the pixels of Pillow.
//
//   orientation      EXIF's, or that of XMP in a JPEG
//   gray, palettes   become RGB
//   transparency     is ignored, or laid over white
//   16 bits          keep the high byte (Pillow clips 16-bit gray instead)
//   color profiles   are ignored
//
// The Errors' texts follow the name of the file, and say what to do: "is truncated: ...".

#include <cstddef>
#include <span>

#include "text/images/resize.h"

namespace flatshard {

// A small file can announce a huge picture, so the memory for it has this bound: 400 MB for a PNG, and for a
// JPEG, which may need all its coefficients, 900 MB.
inline constexpr int64_t kMaxImagePixels = 100'000'000;

enum class Transparency { ignored, over_white };

Image decoded(std::span<const std::byte> file, Transparency transparency = Transparency::ignored,
              int64_t max_pixels = kMaxImagePixels);

}  // namespace flatshard
