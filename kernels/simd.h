#pragma once
// Sixteen floats at a time, for the CPU twins. The width is fixed, whatever the processor: sums have the same
// order and results the same bits with or without AVX-512 (a processor without fused multiply-add rounds once
// more). The project is compiled with -ffp-contract=off, so a multiplication and an addition fuse only where
// fma() says so.
//
// A loop over n elements runs the same body for whole vectors and for the tail:
//   for_each_vector(n, [&](int64_t i, auto lanes) { store(y + i, load(x + i, lanes) * w, lanes); });
// Lanes beyond the tail read as zero and are not written.
//
// This header is the one place where instruction sets are named.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "runtime/dtype.h"

namespace flatshard::simd {

inline constexpr int kWidth = 16;

using Floats [[gnu::vector_size(64)]] = float;
using Ints [[gnu::vector_size(64)]] = int32_t;
using Words [[gnu::vector_size(64)]] = uint32_t;
using Halves [[gnu::vector_size(32)]] = uint16_t;

// The number of lanes in use: Full in the main loop, an int in the tail.
struct Full {
  constexpr operator int() const { return kWidth; }
};

template <class Body>
[[gnu::always_inline]] inline void for_each_vector(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) body(i, Full{});
  if (i < n) body(i, static_cast<int>(n - i));
}

inline Floats splat(float value) { return Floats{} + value; }

// a * b + c, rounded once where the processor can.
inline Floats fma(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  Floats r;
  __m256 *out = reinterpret_cast<__m256*>(&r), *x = reinterpret_cast<__m256*>(&a);
  __m256 *y = reinterpret_cast<__m256*>(&b), *z = reinterpret_cast<__m256*>(&c);
  out[0] = _mm256_fmadd_ps(x[0], y[0], z[0]);
  out[1] = _mm256_fmadd_ps(x[1], y[1], z[1]);
  return r;
#else
  return a * b + c;
#endif
}

inline Floats max(Floats a, Floats b) { return a > b ? a : b; }  // b where either is NaN
inline Floats min(Floats a, Floats b) { return a < b ? a : b; }
inline Floats abs(Floats a) { return (Floats)((Words)a & 0x7fffffffu); }

inline Floats sqrt(Floats a) {
#if defined(__AVX512F__)
  return (Floats)_mm512_sqrt_ps((__m512)a);
#else
  for (int i = 0; i < kWidth; ++i) a[i] = std::sqrt(a[i]);
  return a;
#endif
}

// --- conversions
// -----------------------------------------------------------------------------------------------

inline Floats widen_bf16(Halves bits) { return (Floats)(__builtin_convertvector(bits, Words) << 16); }

// Rounds to nearest even like bf16(float). (The processor's own instruction drops subnormals.)
inline Halves narrow_bf16(Floats value) {
  const Words u = (Words)value;
  const Words rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const Words quieted = (u >> 16) | 0x40u;
  return __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? quieted : rounded, Halves);
}

inline Floats widen_f16(Halves bits) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps((__m256i)bits);
#else
  Floats value;
  for (int i = 0; i < kWidth; ++i) value[i] = std::bit_cast<f16>(static_cast<uint16_t>(bits[i]));
  return value;
#endif
}

inline Halves narrow_f16(Floats value) {
#if defined(__AVX512F__)
  return (Halves)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  Halves bits;
  for (int i = 0; i < kWidth; ++i) bits[i] = f16(value[i]).bits;
  return bits;
#endif
}

// --- memory
// ----------------------------------------------------------------------------------------------------

namespace detail {
template <class Vector, class T, class Lanes>
inline Vector load_bits(const T* p, Lanes lanes) {
  Vector v{};
  std::memcpy(&v, p, static_cast<size_t>(lanes) * sizeof(T));
  return v;
}
template <class Vector, class T, class Lanes>
inline void store_bits(T* p, const Vector& v, Lanes lanes) {
  std::memcpy(static_cast<void*>(p), &v, static_cast<size_t>(lanes) * sizeof(T));
}
}  // namespace detail

template <class Lanes = Full>
inline Floats load(const float* p, Lanes lanes = {}) {
  return detail::load_bits<Floats>(p, lanes);
}
template <class Lanes = Full>
inline Floats load(const bf16* p, Lanes lanes = {}) {
  return widen_bf16(detail::load_bits<Halves>(p, lanes));
}
template <class Lanes = Full>
inline Floats load(const f16* p, Lanes lanes = {}) {
  return widen_f16(detail::load_bits<Halves>(p, lanes));
}

template <class Lanes = Full>
inline void store(float* p, Floats v, Lanes lanes = {}) {
  detail::store_bits(p, v, lanes);
}
template <class Lanes = Full>
inline void store(bf16* p, Floats v, Lanes lanes = {}) {
  detail::store_bits(p, narrow_bf16(v), lanes);
}
template <class Lanes = Full>
inline void store(f16* p, Floats v, Lanes lanes = {}) {
  detail::store_bits(p, narrow_f16(v), lanes);
}

// v as it would be read back from storage of type T.
template <class T>
inline Floats round_to(Floats v) {
  if constexpr (std::is_same_v<T, bf16>) return widen_bf16(narrow_bf16(v));
  if constexpr (std::is_same_v<T, f16>) return widen_f16(narrow_f16(v));
  return v;
}

// Lanes from `lanes` on replaced by `other`; for reductions in which zero is not neutral.
template <class Lanes>
inline Floats keep_lanes(Floats v, Lanes lanes, float other) {
  if constexpr (std::is_same_v<Lanes, Full>) return v;
  constexpr Ints kIndex{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return kIndex < static_cast<int>(lanes) ? v : splat(other);
}

// --- across the lanes, always as the same tree
// -----------------------------------------------------------------

inline float sum(Floats v) {
  float part[8];
  for (int i = 0; i < 8; ++i) part[i] = v[i] + v[i + 8];
  for (int i = 0; i < 4; ++i) part[i] += part[i + 4];
  return (part[0] + part[2]) + (part[1] + part[3]);
}

inline float max(Floats v) {
  float part[8];
  for (int i = 0; i < 8; ++i) part[i] = v[i] > v[i + 8] ? v[i] : v[i + 8];
  for (int i = 0; i < 4; ++i) part[i] = part[i] > part[i + 4] ? part[i] : part[i + 4];
  const float a = part[0] > part[2] ? part[0] : part[2], b = part[1] > part[3] ? part[1] : part[3];
  return a > b ? a : b;
}

// --- functions
// -------------------------------------------------------------------------------------------------

// 2^n for whole n in [-126, 127].
inline Floats power_of_two(Ints n) { return (Floats)((n + 127) << 23); }

// e^x within 2 units in the last place; 0 below -87.34, infinity above 88.72, NaN stays NaN.
inline Floats exp(Floats x) {
  const Floats clamped = min(max(x, splat(-104.0f)), splat(104.0f));
  // x = n ln 2 + r, |r| <= ln 2 / 2; adding and taking away 1.5 * 2^23 rounds to a whole number.
  const Floats magic = splat(12582912.0f);
  const Floats n = fma(clamped, splat(1.44269504f), magic) - magic;
  const Floats r = fma(n, splat(-1.42860677e-6f), fma(n, splat(-0.693145752f), clamped));
  // e^r = 1 + r + r^2 q(r), the Taylor series to r^7.
  Floats q = splat(1.0f / 5040);
  q = fma(q, r, splat(1.0f / 720));
  q = fma(q, r, splat(1.0f / 120));
  q = fma(q, r, splat(1.0f / 24));
  q = fma(q, r, splat(1.0f / 6));
  q = fma(q, r, splat(0.5f));
  const Floats e = fma(q * r, r, r) + 1.0f;
  // 2^n in two factors, so that n = 128 does not overflow too early.
  const Ints whole = __builtin_convertvector(n, Ints), half = whole >> 1;
  const Floats scaled = e * power_of_two(half) * power_of_two(whole - half);
  const Floats bounded = x < -87.3365448f ? splat(0.0f) : x > 88.7228394f ? splat(__builtin_inff()) : scaled;
  return x != x ? x : bounded;
}

}  // namespace flatshard::simd
