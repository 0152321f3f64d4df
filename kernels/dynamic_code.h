#pragma once
// Finds codes of the dynamic tables (dynamic_table.h) without a search. Within a decade the values of a table
// are evenly spaced, so the position of a magnitude among them is a linear function of it. Rounding makes
// that function uncertain near a midpoint: where the positions at -kUncertainty and +kUncertainty differ, a
// comparison with the midpoint itself decides. On every processor the result is the same as with a search.
//
// A position counts the magnitudes of a table: 0 is zero, and the last position is 1.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/dynamic_table.h"

namespace flatshard {

inline constexpr float kUncertainty = 0x1p-12f;
inline constexpr int kDecades = 7;

template <int kSize>
struct DynamicPositions {
  static constexpr int kTop = kSize - 1;  // position of the magnitude 1
  // Entry i is for binade i: values below `bound`, a midpoint in this binade, are in range number `range`.
  float range[32]{}, bound[32]{};
  // Entry r is for range r: range 0 is for zero, then there is one for each decade, then one for 1. The
  // position of a magnitude a is trunc(min(scale a + offset, last)).
  float scale[16]{}, offset[16]{}, last[16]{};
  float magnitude[kSize]{}, middle[kSize]{};  // magnitude of each position; midpoint between it and the next

  // The index of the binade of a nonnegative number below 2^8; numbers below 2^-22 share the first.
  static constexpr int32_t binade_of(uint32_t bits) {
    return std::max(static_cast<int32_t>(bits >> 23) - kLowestExponent, 0);
  }
  static constexpr int32_t kLowestExponent = 127 - 23;
};

// The positions of a table with kSize - 1 positive magnitudes, of which 2^(i + finer) are in decade i.
template <int kSize>
constexpr DynamicPositions<kSize> dynamic_positions(const DynamicTable& table, int zero) {
  using Positions = DynamicPositions<kSize>;
  constexpr int kFiner = kSize == 256 ? 1 : 0;
  Positions p;
  for (size_t k = 0; k < kSize; ++k) p.magnitude[k] = table[static_cast<size_t>(zero) + k];
  for (size_t k = 0; k + 1 < kSize; ++k) p.middle[k] = (p.magnitude[k] + p.magnitude[k + 1]) * 0.5f;
  p.offset[0] = p.last[0] = 0.5f;
  p.offset[kDecades + 1] = p.last[kDecades + 1] = Positions::kTop + 0.5f;
  double cells = kFiner == 1 ? 2 : 1, power = 1e6;  // number of values in decade i, and 1 / its upper end
  for (size_t i = 1; i <= kDecades; ++i, cells *= 2, power /= 10) {
    p.scale[i] = static_cast<float>(cells * power / 0.9);
    p.offset[i] = static_cast<float>(cells * (1 - 0.1 / 0.9) - kFiner);
    p.last[i] = static_cast<float>(2 * cells - kFiner - 0.5);
  }
  float ends[kDecades + 2]{};  // upper ends of the ranges
  for (size_t r = 0; r <= kDecades; ++r) ends[r] = p.middle[(size_t{1} << r << kFiner) - kFiner - 1];
  ends[kDecades + 1] = 2.0f;
  for (size_t b = 0, r = 0; b < 32; ++b) {
    p.range[b] = static_cast<float>(r);
    p.bound[b] = ends[r];
    if (static_cast<size_t>(Positions::binade_of(std::bit_cast<uint32_t>(ends[r]))) == b && r <= kDecades)
      ++r;
  }
  return p;
}

// The magnitudes of the signed table; its largest negative one is at kTop - 1.
inline constexpr auto kSignedPositions = dynamic_positions<129>(kSignedDynamicTable, kSignedZero);
inline constexpr auto kUnsignedPositions = dynamic_positions<256>(kUnsignedDynamicTable, 0);

}  // namespace flatshard
