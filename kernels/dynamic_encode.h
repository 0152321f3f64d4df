#pragma once
// Finds codes of the dynamic tables on the CPU, sixteen at a time, as dynamic_code.h describes. Positions are
// fixed-point numbers with kFraction fraction bits: the low bits of the float 2^8 + position.

#include "kernels/dynamic_code.h"
#include "kernels/simd_math.h"

namespace flatshard {

template <int kSize>
class DynamicEncoder {
 public:
  static constexpr int kFraction = 15;

  explicit DynamicEncoder(const DynamicPositions<kSize>& p) : positions_(p) {
    for (int i = 0; i < 2 * simd::kWidth; ++i) {
      const int binade = (i - DynamicPositions<kSize>::kLowestExponent) & 31;  // exponents that are i mod 32
      const uint32_t range = static_cast<uint32_t>(p.range[binade]);
      // It must be a reference: under the undefined-behaviour sanitizer, GCC 12 assigns to a copy of a
      // conditional expression.
      simd::Words& half = i < simd::kWidth ? entry_ : upper_entry_;
      half[i % simd::kWidth] = ((range + 1) << kRangeShift) - 1 - std::bit_cast<uint32_t>(p.bound[binade]);
    }
    scale_ = simd::load(p.scale);
    offset_ = simd::load(p.offset) + kOrigin;
    last_ = simd::load(p.last) + kOrigin;
  }

  // The positions of magnitudes of at most 1, in two vectors.
  struct Two {
    simd::Words first, second;
  };
  [[gnu::always_inline]] Two positions_of(simd::Floats first, simd::Floats second) const {
    const simd::Floats smallest = simd::splat(0x1p-23f);  // smaller values share a binade with it
    const simd::Floats a = simd::max(first, smallest), b = simd::max(second, smallest);
    const Two position{nearly(a), nearly(b)};
    if (simd::any_zero(position.first, position.second, simd::Words{} + kUnsureMask)) [[unlikely]]
      return {settled(positions_, a, position.first), settled(positions_, b, position.second)};
    return position;
  }

 protected:
  static constexpr float kBase = 0x1p8f;

 private:
  static constexpr int kRangeShift = 28;
  // An upper bound of the error of a fraction, which comes from rounding the line, its factors and the
  // midpoints. Positions are larger by kUnsure, so fractions below 2 kUnsure are unsure.
  static constexpr uint32_t kUnsure = 4;
  static constexpr uint32_t kUnsureMask = (1u << kFraction) - 2 * kUnsure;
  static constexpr float kOrigin = kBase + static_cast<float>(kUnsure) / (1 << kFraction);

  [[gnu::always_inline]] simd::Words nearly(simd::Floats a) const {
    const simd::Words bits = (simd::Words)a;
    const simd::Words entry =
        (simd::Words)simd::lookup((simd::Floats)entry_, (simd::Floats)upper_entry_, (simd::Ints)(bits >> 23));
    const simd::Ints range = (simd::Ints)((bits + entry) >> kRangeShift);
    const simd::Floats line = simd::fma(a, simd::lookup(scale_, range), simd::lookup(offset_, range));
    return (simd::Words)simd::min(line, simd::lookup(last_, range));
  }

  // Compares with the midpoint above a position, in lanes where rounding may have lost a comparison.
  [[gnu::noinline]] static simd::Words settled(const DynamicPositions<kSize>& p, simd::Floats a,
                                               simd::Words position) {
    for (int i = 0; i < simd::kWidth; ++i) {
      if ((position[i] & kUnsureMask) != 0) continue;
      uint32_t whole = (position[i] - 2 * kUnsure) >> kFraction;
      const uint32_t below = whole & 0xff;  // 255 stands for -1, below position 0
      if (below >= kSize || a[i] > p.middle[below]) ++whole;
      position[i] = whole << kFraction;
    }
    return position;
  }

  const DynamicPositions<kSize>& positions_;
  simd::Words entry_, upper_entry_;     // entry for each exponent: bits + entry has the range in its top bits
  simd::Floats scale_, offset_, last_;  // line of each range
};

// Codes in the unsigned table of 32 y >= 0.
class UnsignedEncoder : DynamicEncoder<256> {
 public:
  UnsignedEncoder() : DynamicEncoder(kUnsignedPositions) {}
  [[gnu::always_inline]] simd::Halves operator()(simd::Floats a, simd::Floats b) const {
    const auto [first, second] = positions_of(a, b);
    return simd::third_bytes(first + first, second + second);
  }
};

// Codes in the signed table of 32 y. A tie takes the smaller magnitude, and no negative y has the code of
// zero.
class SignedEncoder : DynamicEncoder<129> {
 public:
  SignedEncoder() : DynamicEncoder(kSignedPositions) {}
  [[gnu::always_inline]] simd::Halves operator()(simd::Floats a, simd::Floats b) const {
    a += 0.0f, b += 0.0f;  // -0 is not negative
    return codes_of(signs(a, b), positions_of(simd::abs(a), simd::abs(b)), 1);
  }

  // Like operator(), but a tie takes the lower code, also for negative y, which may have the code of zero.
  [[gnu::always_inline]] simd::Halves lower_codes(simd::Floats a, simd::Floats b) const {
    return codes_of(signs(a, b), positions_of(next_if_negative(a), next_if_negative(b)), 0);
  }

 private:
  using Codes [[gnu::vector_size(32)]] = uint8_t;
  using Signs [[gnu::vector_size(32)]] = int8_t;

  // The magnitude of y, or if y is negative the next larger one.
  [[gnu::always_inline]] static simd::Floats next_if_negative(simd::Floats y) {
    const simd::Ints negative = y < 0.0f;
    return (simd::Floats)((simd::Words)simd::abs(y) - (simd::Words)negative);
  }
  [[gnu::always_inline]] static Signs signs(simd::Floats a, simd::Floats b) {
    return (Signs)simd::top_bytes((simd::Words)a, (simd::Words)b);
  }
  // Positions below zero are at least `smallest`.
  [[gnu::always_inline]] static simd::Halves codes_of(Signs signs, Two positions, uint8_t smallest) {
    constexpr uint8_t kZero = kSignedZero;  // equals the largest position below zero: the table has no -1
    const Codes position =
        (Codes)simd::third_bytes(positions.first + positions.first, positions.second + positions.second);
    const Codes least = Codes{} + smallest, most = Codes{} + kZero;
    const Codes large = position < least ? least : position, down = large < most ? large : most;
    return (simd::Halves)(kZero + (signs < 0 ? -down : position));
  }
};

// codes[i] = the code of value(i), 32 at a time: value(i, lanes) returns sixteen values, and encode takes two
// such vectors.
template <class Value, class Encode>
[[gnu::always_inline]] inline void encode_values(uint8_t* codes, int64_t n, Value&& value, Encode&& encode) {
  constexpr int64_t kCodes = 2 * simd::kWidth;
  int64_t i = 0;
  for (; i + kCodes <= n; i += kCodes) {
    const simd::Halves bytes = encode(value(i, simd::Full{}), value(i + simd::kWidth, simd::Full{}));
    std::memcpy(codes + i, &bytes, sizeof bytes);
  }
  if (i == n) return;
  const int lanes = static_cast<int>(n - i), first = std::min(lanes, simd::kWidth);
  const simd::Halves bytes = encode(value(i, first), value(i + first, lanes - first));
  std::memcpy(codes + i, &bytes, static_cast<size_t>(lanes));
}

}  // namespace flatshard
