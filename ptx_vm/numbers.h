#pragma once
// GPU arithmetic where C++ leaves the result undefined or defines it differently: 16-bit floats, the
// canonical NaN, flushing of subnormals, minimum and maximum, and float-to-integer conversion.

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace flatshard::ptx_vm {

// Storage of 16-bit floats; arithmetic goes through float or double.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};
struct Fp8 {  // E4M3: no infinities, and one NaN of each sign
  uint8_t bits;
};

inline constexpr uint32_t kNan32 = 0x7fffffff;
inline constexpr uint16_t kNan16 = 0x7fff;

inline float canonical(float x) { return x == x ? x : std::bit_cast<float>(kNan32); }
inline double canonical(double x) { return x == x ? x : std::bit_cast<double>(0xfff8000000000000u); }

inline float flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

inline float to_float(Half h) { return static_cast<float>(std::bit_cast<_Float16>(h.bits)); }
inline float to_float(BFloat b) { return std::bit_cast<float>(static_cast<uint32_t>(b.bits) << 16); }
inline float to_float(Fp8 x) {
  const int exponent = x.bits >> 3 & 15, mantissa = x.bits & 7;
  const float size = exponent == 15 && mantissa == 7 ? std::bit_cast<float>(kNan32)
                     : exponent == 0                 ? std::ldexp(static_cast<float>(mantissa), -9)
                                     : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return x.bits & 0x80 ? -size : size;
}
inline float to_float(float x) { return x; }

template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline Half from_float<Half>(float x) {
  return {x == x ? std::bit_cast<uint16_t>(static_cast<_Float16>(x)) : kNan16};
}
template <>
inline BFloat from_float<BFloat>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return {x == x ? static_cast<uint16_t>(rounded) : kNan16};
}

// Rounds to odd: returns the neighbour of `rounded` towards the exact value if the last bit of `rounded` is
// even, so that a second rounding to fewer bits is correct. `rest` has the sign of exact - rounded.
template <class Real>
inline Real to_odd(Real rounded, double rest) {
  using Bits = std::conditional_t<sizeof(Real) == 4, uint32_t, uint64_t>;
  if (rest == 0 || !std::isfinite(rounded) || (std::bit_cast<Bits>(rounded) & 1)) return rounded;
  return std::nextafter(
      rounded, rest > 0 ? std::numeric_limits<Real>::infinity() : -std::numeric_limits<Real>::infinity());
}

// Computes a + b, rounded once to a 16-bit type. Both must be exact in double.
template <class T>
inline T sum_to(double a, double b) {
  const double sum = a + b, b_part = sum - a;
  const double rest = (a - (sum - b_part)) + (b - b_part);
  const double odd = to_odd(sum, rest);
  const auto single = static_cast<float>(odd);
  return from_float<T>(to_odd(single, odd - static_cast<double>(single)));
}

enum class Rounding : uint8_t { nearest, zero, down, up };

// The float next to `value` in the direction of the rounding, if the exact sum + rest lies on the other side.
inline float directed(float value, double sum, double rest, Rounding rounding) {
  const auto v = static_cast<double>(value);
  const bool too_high = v > sum || (v == sum && rest < 0), too_low = v < sum || (v == sum && rest > 0);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (too_high && (rounding == Rounding::down || (rounding == Rounding::zero && sum > 0)))
    return std::nextafter(value, -kInfinity);
  if (too_low && (rounding == Rounding::up || (rounding == Rounding::zero && sum < 0)))
    return std::nextafter(value, kInfinity);
  return value;
}

// Minimum and maximum: if one operand is NaN, they return the other one; +0 is greater than -0. They are
// branch-free like power_of_two, so that loops over lanes can be vectorized.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
T min_number(T a, T b) {
  const T equal = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) | std::bit_cast<BitsOf<T>>(b));
  const T smaller = a == b ? equal : a < b ? a : b;
  return a != a ? canonical(b) : b != b ? a : smaller;
}
template <class T>
T max_number(T a, T b) {
  const T equal = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) & std::bit_cast<BitsOf<T>>(b));
  const T larger = a == b ? equal : a > b ? a : b;
  return a != a ? canonical(b) : b != b ? a : larger;
}

// Computes 2^x to nearly double precision. For results beyond the range of float, only the overflow is right.
inline double power_of_two(double x) {
  constexpr double kRound = 0x1.8p52, kLog2 = 0.693147180559945309, kBeyond = 200;
  constexpr int kTerms = 13;
  x = x > kBeyond ? kBeyond : x < -kBeyond ? -kBeyond : x;
  const double shifted = x + kRound;  // the nearest integer, in its low bits
  const double rest = x - (shifted - kRound);
  double sum = 1;
  for (int k = kTerms - 1; k > 0; --k) sum = 1 + sum * (rest * (kLog2 / k));
  return sum * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) << 52) + (uint64_t{1023} << 52));
}

// Converts x, an integer value or NaN, to I: saturates, and NaN becomes 0.
template <std::integral I>
inline I saturated(double x) {
  constexpr double low = static_cast<double>(std::numeric_limits<I>::min());
  constexpr double above = static_cast<double>(std::numeric_limits<I>::max() / 2 + 1) * 2.0;
  if (x != x) return 0;
  if (x < low) return std::numeric_limits<I>::min();
  if (x >= above) return std::numeric_limits<I>::max();
  return static_cast<I>(x);
}

}  // namespace flatshard::ptx_vm
