#pragma once
// Codes of the dynamic tables on the CPU, sixteen at a time, found as dynamic_code.h describes. Positions are
// fixed-point numbers: the bits of the float 2^8 + position, of which kFraction are the fraction.

#include "kernels/dynamic_code.h"
#include "kernels/simd_math.h"

namespace flatshard {

template <int kSize>
class DynamicEncoder {
 public:
  static constexpr int kFraction = 15, kToTop = 24 - kFraction;

  explicit DynamicEncoder(const DynamicPositions<kSize>& p) : positions_(p) {
    for (int i = 0; i < 2 * simd::kWidth; ++i) {
      const int binade = (i - DynamicPositions<kSize>::kLowestExponent) & 31;  // of the exponents i mod 32
      (i < simd::kWidth ? range_ : upper_range_)[i % simd::kWidth] = static_cast<int>(p.range[binade]);
      (i < simd::kWidth ? bound_ : upper_bound_)[i % simd::kWidth] = p.bound[binade];
    }
    scale_ = simd::load(p.scale);
    offset_ = simd::load(p.offset) + kBase;
    last_ = simd::load(p.last) + kBase;
  }

  // The positions of magnitudes of at most 1.
  [[gnu::always_inline]] simd::Words positions_of(simd::Floats magnitude) const {
    const simd::Floats a = simd::max(magnitude, simd::splat(0x1p-23f));  // smaller ones share a binade
    const simd::Ints exponent = (simd::Ints)((simd::Words)a >> 23);
    const simd::Ints below =
        (simd::Ints)simd::lookup((simd::Floats)range_, (simd::Floats)upper_range_, exponent);
    const simd::Ints range = a > simd::lookup(bound_, upper_bound_, exponent) ? below + 1 : below;
    const simd::Floats line = simd::fma(a, simd::lookup(scale_, range), simd::lookup(offset_, range));
    const simd::Words position = (simd::Words)simd::min(line, simd::lookup(last_, range));
    if (simd::any_zero(position + kUnsure, simd::Words{} + unsure_mask())) [[unlikely]]
      return settled(positions_, a, position);
    return position;
  }

 protected:
  static constexpr float kBase = 0x1p8f;

 private:
  // More than the error of a fraction, which is due to the rounding of the line, its factors and the
  // midpoints.
  static constexpr uint32_t kUnsure = 4;
  static constexpr uint32_t unsure_mask() { return (1u << kFraction) - 2 * kUnsure; }

  // Compares with the midpoint above a position, in lanes where rounding may have lost a comparison.
  [[gnu::noinline]] static simd::Words settled(const DynamicPositions<kSize>& p, simd::Floats a,
                                               simd::Words position) {
    for (int i = 0; i < simd::kWidth; ++i) {
      if (((position[i] + kUnsure) & unsure_mask()) != 0) continue;
      uint32_t whole = (position[i] - kUnsure) >> kFraction;
      if (a[i] > p.middle[whole & 0xff]) ++whole;
      position[i] = whole << kFraction;
    }
    return position;
  }

  const DynamicPositions<kSize>& positions_;
  simd::Ints range_, upper_range_;      // by exponent
  simd::Floats bound_, upper_bound_;    // by exponent
  simd::Floats scale_, offset_, last_;  // by range
};

// Codes in the unsigned table, in the top bytes; y >= 0.
class UnsignedEncoder : DynamicEncoder<256> {
 public:
  UnsignedEncoder() : DynamicEncoder(kUnsignedPositions) {}
  [[gnu::always_inline]] simd::Words operator()(simd::Floats y) const { return positions_of(y) << kToTop; }
};

// Codes in the signed table, in the top bytes. In a tie the code is that of the smaller magnitude, and no
// negative y has the code of zero.
class SignedEncoder : DynamicEncoder<129> {
 public:
  SignedEncoder() : DynamicEncoder(kSignedPositions) {}
  [[gnu::always_inline]] simd::Words operator()(simd::Floats y) const {
    const simd::Ints negative = y < 0.0f;
    const simd::Words position = positions_of(simd::abs(y)), smallest = simd::Words{} + at(1);
    return codes_of(negative, position < smallest ? smallest : position, position);
  }

  // In a tie the lower code, also for negative y, which may have the code of zero.
  [[gnu::always_inline]] simd::Words lower_codes(simd::Floats y) const {
    const simd::Ints negative = y < 0.0f;
    const simd::Words next = (simd::Words)simd::abs(y) - (simd::Words)negative;  // the next larger magnitude
    const simd::Words position = positions_of((simd::Floats)next);
    return codes_of(negative, position, position);
  }

 private:
  static constexpr uint32_t at(uint32_t position) {
    return std::bit_cast<uint32_t>(kBase) + (position << kFraction);
  }
  [[gnu::always_inline]] static simd::Words codes_of(simd::Ints negative, simd::Words below_zero,
                                                     simd::Words position) {
    const simd::Words lowest = simd::Words{} + at(kSignedZero);  // the table has no -1
    const simd::Words down = at(kSignedZero + 1) - 1 - (below_zero < lowest ? below_zero : lowest);
    return (negative ? down : position + at(kSignedZero)) << kToTop;
  }
};

}  // namespace flatshard
