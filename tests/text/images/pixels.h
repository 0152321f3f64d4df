#pragma once
// Pixels of noise and hashes of pixels, as tests/golden/pixels.py computes them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "text/images/resize.h"

namespace flatshard::test {

inline Image noise(int64_t width, int64_t height, uint64_t seed) {
  Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  for (size_t i = 0; i < image.rgb.size(); ++i) {
    uint64_t x = (i + 1 + (seed << 32)) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    image.rgb[i] = static_cast<uint8_t>(x >> 56);
  }
  return image;
}

// The sum of (byte[i] + 1) * k^(i + 1) modulo 2^64, in hexadecimal digits.
inline std::string hash_of(std::span<const std::byte> bytes) {
  uint64_t sum = 0, power = 1;
  for (const std::byte byte : bytes) {
    power *= 0x9e3779b97f4a7c15u;
    sum += (static_cast<uint64_t>(byte) + 1) * power;
  }
  std::string text(16, '0');
  for (size_t i = 0; i < 16; ++i) text[15 - i] = "0123456789abcdef"[(sum >> (4 * i)) & 15];
  return text;
}

inline std::string hash_of(const Image& image) { return hash_of(std::as_bytes(std::span(image.rgb))); }

}  // namespace flatshard::test
