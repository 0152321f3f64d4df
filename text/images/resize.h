#pragma once
// Images of 8-bit RGB, and resizing equal to Image.resize of Pillow 13, bit for bit. Pillow before 13 runs
// the passes below in the other order for some sizes, which rounds some pixels differently.
//
// A pass computes each output pixel x from the input pixels j near its center c = (x + 0.5) * scale, where
// scale = input size / output size:
//
//   weight(j) = filter((j - c + 0.5) / max(scale, 1)), divided by the sum of all weights, rounded to 2^-22
//
// and rounds the weighted sum to 8 bits. The horizontal pass comes first, unless the height becomes smaller,
// and by more than twice as many pixels as the width. A pass that changes no size is left out.

#include <array>
#include <cstdint>
#include <vector>

namespace flatshard {

struct ImageSize {
  int64_t width = 0, height = 0;
  bool operator==(const ImageSize&) const = default;
};

struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // (height, width, 3)
  bool operator==(const Image&) const = default;
};

enum class ResizeFilter { bilinear, bicubic, lanczos };
constexpr auto value_names(ResizeFilter) { return std::array{"bilinear", "bicubic", "lanczos"}; }

// The largest side of a JPEG.
inline constexpr int64_t kMaxImageSide = 65535;

// Throws an Error unless 1 <= width, height <= kMaxImageSide.
Image resized(const Image& image, int64_t width, int64_t height, ResizeFilter filter);

}  // namespace flatshard
