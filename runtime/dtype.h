#pragma once
// The element types of tensors. bf16 and f16 are storage types: they convert to and from float, rounding to
// nearest even and preserving subnormals and NaN, identically on host and device. Arithmetic is in float.

#include <bit>
#include <cstdint>
#include <ostream>

#include "runtime/check.h"

namespace flatshard {

struct bf16 {
  bf16() = default;
  constexpr explicit bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(is_nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  uint16_t bits;
};

struct f16 {
  f16() = default;
  constexpr explicit f16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    bits = static_cast<uint16_t>(sign | round_magnitude(magnitude));
  }
  constexpr operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 31) {  // a NaN becomes quiet, as in hardware conversions
      const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
      return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
    }
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    const float subnormal = static_cast<float>(mantissa) * 0x1p-24f;  // the product is exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
  }
  uint16_t bits;

 private:
  static constexpr uint32_t round_magnitude(uint32_t magnitude) {
    if (magnitude > 0x7f800000u) return 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // NaN stays NaN
    if (magnitude >= 0x477ff000u) return 0x7c00u;                                // 65520 and above: infinity
    if (magnitude < 0x33000000u) return 0;  // less than half of 2^-24 rounds to zero
    const uint32_t exponent = magnitude >> 23;
    if (exponent >= 113) return (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u, shift = 126u - exponent;  // subnormal
    const uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u),
                   half = 1u << (shift - 1u);
    return kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u);
  }
};

enum class DType : uint8_t { f32, bf16, f16, i32, u8 };

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  return "?";
}

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

constexpr bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

// The DType of a C++ element type: dtype_of<bf16> is DType::bf16.
template <class T>
inline constexpr DType dtype_of = [] { static_assert(sizeof(T) == 0, "not an element type"); }();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;

// Calls f.operator()<T>() with the C++ type of a floating-point dtype:
// visit_float(x.dtype, [&]<class T> { ... }).
template <class F>
decltype(auto) visit_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::bf16:
      return f.template operator()<bf16>();
    case DType::f16:
      return f.template operator()<f16>();
    default:
      fail(str("dtype is ", dtype, ", must be f32, bf16 or f16"));
  }
}

}  // namespace flatshard
