#include "runtime/dtype.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int kPatterns = 65536;

// The value of a 16-bit float, computed in double from the definition of its format.
double value_by_definition(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// `value` rounded to the nearest number of the format, ties to even, in double.
double rounded_by_definition(double value, int exponent_bits, int mantissa_bits) {
  if (!std::isfinite(value) || value == 0) return value;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = std::max(std::ilogb(value), 1 - bias);  // subnormals share the lowest exponent
  const double unit = std::ldexp(1.0, exponent - mantissa_bits);
  const double rounded = std::nearbyint(value / unit) * unit;
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, -mantissa_bits), bias);
  return std::abs(rounded) > largest ? std::copysign(INFINITY, value) : rounded;
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

template <class T>
T from_bits(int bits) {
  return std::bit_cast<T>(static_cast<uint16_t>(bits));
}

template <class T>
int count_wrong_values(int exponent_bits, int mantissa_bits) {
  int wrong = 0;
  for (int bits = 0; bits < kPatterns; ++bits) {
    const double expected = value_by_definition(static_cast<uint32_t>(bits), exponent_bits, mantissa_bits);
    wrong += !same(static_cast<float>(from_bits<T>(bits)), expected);
  }
  return wrong;
}

// The number of patterns that change on the way to float and back. A signaling NaN must become the quiet NaN
// of the same payload.
template <class T>
int count_wrong_round_trips(int quiet_bit) {
  int wrong = 0;
  for (int bits = 0; bits < kPatterns; ++bits) {
    const float value = from_bits<T>(bits);
    wrong += T(value).bits != (std::isnan(value) ? bits | quiet_bit : bits);
  }
  return wrong;
}

// The number of floats that round wrongly, in a sweep over all exponents and around every number of the
// format and every tie between two of them.
template <class T>
int count_wrong_roundings(int exponent_bits, int mantissa_bits) {
  int wrong = 0;
  const auto try_bits = [&](uint32_t bits) {
    const float value = std::bit_cast<float>(bits);
    const double expected = rounded_by_definition(value, exponent_bits, mantissa_bits);
    wrong += !same(static_cast<float>(T(value)), expected);
  };
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4093) try_bits(static_cast<uint32_t>(bits));
  const uint32_t half_unit = 1u << (22 - mantissa_bits);
  for (int bits = 0; bits < kPatterns; ++bits) {
    const uint32_t centre = std::bit_cast<uint32_t>(static_cast<float>(from_bits<T>(bits)));
    for (const uint32_t offset : {0u, half_unit - 1, half_unit, half_unit + 1}) {
      try_bits(centre + offset);
      try_bits(centre - offset);
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("every bf16 and f16 pattern widens to the value its format defines") {
  CHECK(count_wrong_values<bf16>(8, 7) == 0);
  CHECK(count_wrong_values<f16>(5, 10) == 0);
}

TEST_CASE("every bf16 and f16 pattern survives the conversion to float and back") {
  CHECK(count_wrong_round_trips<bf16>(0x40) == 0);
  CHECK(count_wrong_round_trips<f16>(0x200) == 0);
}

TEST_CASE("floats round to the nearest bf16 and f16, ties to even, through subnormals to infinity") {
  CHECK(count_wrong_roundings<bf16>(8, 7) == 0);
  CHECK(count_wrong_roundings<f16>(5, 10) == 0);
}

TEST_CASE("f16 rounds subnormal ties to even and overflows at 65520") {
  CHECK(f16(0x1p-25f).bits == 0);                     // half the smallest subnormal: to even
  CHECK(f16(0x1.000002p-25f).bits == 1);              // just above it
  CHECK(f16(3 * 0x1p-25f).bits == 2);                 // between 1 and 2 units: to even
  CHECK(f16(0x1.ffcp-15f + 0x1p-26f).bits == 0x400);  // up into the normal numbers
  CHECK(f16(65519.996f).bits == 0x7bff);
  CHECK(f16(65520.0f).bits == 0x7c00);
  CHECK(f16(-65520.0f).bits == 0xfc00);
}

TEST_CASE("a NaN stays a NaN when the narrow type drops its payload") {
  const float nan = std::bit_cast<float>(0xff800001u);
  CHECK(bf16(nan).bits == 0xffc0);
  CHECK(f16(nan).bits == 0xfe00);
}

TEST_CASE("visit_float rejects a dtype that is not floating-point") {
  CHECK(test::error_of([] { visit_float(DType::i32, []<class T>() {}); }) ==
        "dtype is i32, must be f32, bf16 or f16");
}
