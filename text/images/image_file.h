#pragma once
// Reads picture files: JPEG, PNG and WebP become 8-bit RGB in display orientation, equal to the pixels of
// Pillow.
//
//   orientation      follows EXIF, or XMP in a JPEG
//   gray, palettes   become RGB
//   transparency     is ignored, or composited over white
//   16 bits          keep the high byte (Pillow clips 16-bit gray instead)
//   color profiles   are ignored
//
// The text of an Error follows the name of the file, and says what to do: "is truncated: ...".

#include <cstddef>
#include <span>

#include "text/images/resize.h"

namespace flatshard {

// A small file can announce a huge picture, so this limit bounds the memory: 400 MB for a PNG, and 900 MB for
// a JPEG, which may need all its coefficients.
inline constexpr int64_t kMaxImagePixels = 100'000'000;

enum class Transparency { ignored, over_white };

Image decoded(std::span<const std::byte> file, Transparency transparency = Transparency::ignored,
              int64_t max_pixels = kMaxImagePixels);

}  // namespace flatshard
