#pragma once
// Encodes values as 4-bit codes on the CPU. The bounds of four_bit_buckets.h are so far apart that an
// interval of width 1/15 around a multiple of 1/15 contains at most one. A value y is compared with that
// bound by an addition: n is an integer that increases with y, and each interval has the entry
//   (code below the bound + 1) 2^28 - 1 - (n of the bound)
// Then the top four bits of n + entry are the code.

#include <span>

#include "kernels/four_bit_buckets.h"
#include "kernels/simd_math.h"

namespace flatshard {

// The table of entries; interval k has entry k mod 32.
struct FourBitEntries {
  std::array<uint32_t, 32> entry{};

  // A code is the number of bounds below y; integer_of(y) is n.
  template <class IntegerOf>
  constexpr FourBitEntries(std::span<const float> bounds, IntegerOf integer_of) {
    for (int k = -15; k <= 15; ++k) {
      const double begin = (k - 0.5) / 15, end = (k + 0.5) / 15;
      uint32_t code = 0;
      while (code < bounds.size() && double{bounds[code]} < begin) ++code;
      const bool has_bound = code < bounds.size() && double{bounds[code]} < end;
      // A bound past the interval if there is none in it.
      const float bound = has_bound ? bounds[code] : static_cast<float>(k + 1) / 15;
      entry[static_cast<size_t>(k & 31)] = ((code + 1) << 28) - 1 - integer_of(bound);
    }
  }

  // A table in which the interval at -k has the entry of the interval at k.
  constexpr FourBitEntries of_magnitudes() const {
    FourBitEntries e = *this;
    for (size_t k = 1; k < 16; ++k) e.entry[32 - k] = entry[k];
    return e;
  }
};

class FourBitEntryTable {
 public:
  explicit FourBitEntryTable(const FourBitEntries& e) {
    for (size_t i = 0; i < simd::kWidth; ++i) first_[i] = e.entry[i], second_[i] = e.entry[i + simd::kWidth];
  }

  // The entry for y = scaled / unit.
  simd::Words at(simd::Floats scaled, float unit) const {
    const simd::Floats rounding = simd::splat(0x1.8p23f);  // leaves a rounded sum in the low bits
    const simd::Floats interval = simd::fma(scaled, simd::splat(15 / unit), rounding);
    return (simd::Words)simd::lookup((simd::Floats)first_, (simd::Floats)second_, (simd::Ints)interval);
  }

 private:
  simd::Words first_, second_;
};

// Here n = y 2^30, which is exact for |y| >= 2^-7, as at all bounds.
class Nf4Encoder {
 public:
  static constexpr float kUnit = 0x1p30f;

  // The codes of y = scaled / kUnit, in the top bits of the lanes.
  simd::Words operator()(simd::Floats scaled) const {
    return (simd::Words) __builtin_convertvector(scaled, simd::Ints) + table_.at(scaled, kUnit);
  }
  // Completes pairs of codes in bytes; NF4 needs no change.
  static simd::Halves finish(simd::Halves pairs) { return pairs; }

 private:
  static constexpr FourBitEntries kEntries{
      kNf4Buckets.above, [](float y) { return static_cast<uint32_t>(static_cast<int32_t>(y * kUnit)); }};
  FourBitEntryTable table_{kEntries};
};

// Here n is the bits of |y|, or of a constant below all bounds if |y| is smaller. Until finish() a code is a
// number of bounds, with the sign of y in the bit above.
class Fp4Encoder {
 public:
  static constexpr float kUnit = 1.0f;

  simd::Words operator()(simd::Floats y) const {
    y += 0.0f;  // -0 is not negative
    const simd::Floats v = simd::larger_magnitude(y, simd::splat(0x1p-9f));
    return (simd::Words)v + table_.at(v, kUnit);
  }
  // Maps 0 ... 7 to 0, 1, 6, 7, 4, 5, 2, 3.
  static simd::Halves finish(simd::Halves pairs) { return pairs ^ (pairs & 0x2222) << 1; }

 private:
  static constexpr FourBitEntries kEntries{
      FourBitEntries(std::span(kFp4Buckets.above).subspan(8), [](float y) {
        return std::bit_cast<uint32_t>(y < 0 ? 0.0f : y);
      }).of_magnitudes()};
  FourBitEntryTable table_{kEntries};
};

}  // namespace flatshard
