#pragma once
// Vectors of sixteen floats, for the CPU kernels. The width is the same on every processor, so sums have the
// same order and results the same bits with and without AVX-512 (without fused multiply-add, fma() rounds
// twice). The project is compiled with -ffp-contract=off: only fma() fuses a multiplication and an addition.
//
// A loop over n elements runs the same body for whole vectors and for the tail:
//   for_each_vector(n, [&](int64_t i, auto lanes) { store(y + i, load(x + i, lanes) * w, lanes); });
// Lanes past the tail read as zero and are not written.
//
// Only this header, simd_math.h and tile_product.h name instruction sets.

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
using TwoHalves [[gnu::vector_size(64)]] = uint16_t;  // two vectors of Halves
using Bytes [[gnu::vector_size(16)]] = uint8_t;
using Longs [[gnu::vector_size(16)]] = int64_t;

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

inline Floats splat(float value) { return value - Floats{}; }  // subtraction, because -0 + 0 would be +0

// a * b + c, rounded once on processors with fused multiply-add.
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

// The larger of a and b; b if either is NaN.
inline Floats max(Floats a, Floats b) {
#if defined(__AVX512F__)
  return (Floats)_mm512_max_ps((__m512)a, (__m512)b);
#else
  return a > b ? a : b;
#endif
}
inline Floats min(Floats a, Floats b) {
#if defined(__AVX512F__)
  return (Floats)_mm512_min_ps((__m512)a, (__m512)b);
#else
  return a < b ? a : b;
#endif
}

inline Floats sqrt(Floats a) {
#if defined(__AVX512F__)
  return (Floats)_mm512_sqrt_ps((__m512)a);
#else
  for (int i = 0; i < kWidth; ++i) a[i] = std::sqrt(a[i]);
  return a;
#endif
}

// The magnitudes of a.
inline Floats abs(Floats a) { return (Floats)((Words)a & 0x7fffffffu); }

// Returns whether v & mask is zero in some lane of v = a or v = b.
inline bool any_zero(Words a, Words b, Words mask) {
#if defined(__AVX512F__)
  const __mmask16 in_a = _mm512_testn_epi32_mask((__m512i)a, (__m512i)mask);
  return _mm512_kortestz(in_a, _mm512_testn_epi32_mask((__m512i)b, (__m512i)mask)) == 0;
#else
  int32_t zero = 0;
  for (int i = 0; i < kWidth; ++i) zero |= (a[i] & mask[i]) == 0 || (b[i] & mask[i]) == 0;
  return zero != 0;
#endif
}
inline bool any_zero(Words v, Words mask) { return any_zero(v, v, mask); }

// Conversions.

inline Floats widen_bf16(Halves bits) {
#if defined(__AVX512F__)
  return (Floats)((Words)_mm512_cvtepu16_epi32((__m256i)bits) << 16);
#else
  return (Floats)(__builtin_convertvector(bits, Words) << 16);
#endif
}

// Rounds to nearest even, like bf16(float).
inline Halves narrow_bf16(Floats value) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
  // The instruction flushes subnormals to zero; otherwise it rounds to nearest even, too.
  constexpr int kSubnormal = 0x20;
  if (_mm512_fpclass_ps_mask((__m512)value, kSubnormal) == 0) [[likely]]
    return (Halves)_mm512_cvtneps_pbh((__m512)value);
#endif
  const Words u = (Words)value;
  const Words rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const Words quieted = (u >> 16) | 0x40u;
  return __builtin_convertvector(value != value ? quieted : rounded, Halves);
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

inline Ints widen_bytes(Bytes v) {
#if defined(__AVX512F__)
  return (Ints)_mm512_cvtepu8_epi32((__m128i)v);
#else
  return __builtin_convertvector(v, Ints);
#endif
}

// Memory.

// The bits of `lanes` elements; the other lanes are zero.
template <class Vector, class T, class Lanes>
inline Vector load_bits(const T* p, Lanes lanes) {
  Vector v{};
  std::memcpy(&v, p, static_cast<size_t>(lanes) * sizeof(T));
  return v;
}

namespace detail {
template <class Vector, class T, class Lanes>
inline void store_bits(T* p, const Vector& v, Lanes lanes) {
  std::memcpy(static_cast<void*>(p), &v, static_cast<size_t>(lanes) * sizeof(T));
}
}  // namespace detail

template <class Lanes = Full>
inline Floats load(const float* p, Lanes lanes = {}) {
  return load_bits<Floats>(p, lanes);
}
template <class Lanes = Full>
inline Floats load(const bf16* p, Lanes lanes = {}) {
  return widen_bf16(load_bits<Halves>(p, lanes));
}
template <class Lanes = Full>
inline Floats load(const f16* p, Lanes lanes = {}) {
  return widen_f16(load_bits<Halves>(p, lanes));
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

// Stores the bits of 16-bit values.
template <class T, class Lanes = Full>
inline void store_halves(T* p, Halves v, Lanes lanes = {}) {
  static_assert(sizeof(T) == sizeof(uint16_t));
  detail::store_bits(p, v, lanes);
}

// Lane i is table[index[i]]; indices are in [0, 16).
inline Floats lookup(Floats table, Ints index) {
#if defined(__AVX512F__)
  return (Floats)_mm512_permutexvar_ps((__m512i)index, (__m512)table);
#elif defined(__AVX2__)
  Floats r;
  const __m256* halves = reinterpret_cast<const __m256*>(&table);
  const __m256i* at = reinterpret_cast<const __m256i*>(&index);
  for (int i = 0; i < 2; ++i) {
    const __m256 low = _mm256_permutevar8x32_ps(halves[0], at[i]);
    const __m256 high = _mm256_permutevar8x32_ps(halves[1], at[i]);
    const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(at[i], 28));  // bit 3 becomes the sign
    reinterpret_cast<__m256*>(&r)[i] = _mm256_blendv_ps(low, high, is_high);
  }
  return r;
#else
  Floats r;
  for (int i = 0; i < kWidth; ++i) r[i] = table[index[i]];
  return r;
#endif
}
// A lookup among 32 values, by the low five bits of an index.
inline Floats lookup(Floats first, Floats second, Ints index) {
#if defined(__AVX512F__)
  return (Floats)_mm512_permutex2var_ps((__m512)first, (__m512i)index, (__m512)second);
#else
  return (index & 16) != 0 ? lookup(second, index & 15) : lookup(first, index & 15);
#endif
}
inline Floats lookup(Floats table, Bytes index) { return lookup(table, widen_bytes(index)); }
inline Halves lookup(Halves table, Bytes index) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return (Halves)_mm256_permutexvar_epi16(_mm256_cvtepu8_epi16((__m128i)index), (__m256i)table);
#else
  Halves r;
  for (int i = 0; i < kWidth; ++i) r[i] = table[index[i]];
  return r;
#endif
}

// Prefetches the cache line at p, which may be past the data, so that memory delivers the next row while an
// op computes on the current one.
template <class T>
inline void fetch(const T* p) {
  __builtin_prefetch(p);
}

// Non-temporal stores: full vectors at an aligned address are written without fetching their cache lines
// first. They become visible to other threads after store_fence(). Ops use them through
// kernels/parallel_write.h.
template <class T, class Vector>
inline void store_bits_past_caches(T* p, const Vector& v) {
#if defined(__AVX512F__)
  if (reinterpret_cast<uintptr_t>(p) % sizeof v == 0) {
    if constexpr (sizeof v == 64) _mm512_stream_si512(reinterpret_cast<__m512i*>(p), (__m512i)v);
    if constexpr (sizeof v == 32) _mm256_stream_si256(reinterpret_cast<__m256i*>(p), (__m256i)v);
    if constexpr (sizeof v == 16) _mm_stream_si128(reinterpret_cast<__m128i*>(p), (__m128i)v);
    return;
  }
#endif
  std::memcpy(static_cast<void*>(p), &v, sizeof v);
}
inline void store_past_caches(float* p, Floats v) { store_bits_past_caches(p, v); }
inline void store_past_caches(bf16* p, Floats v) { store_bits_past_caches(p, narrow_bf16(v)); }
inline void store_past_caches(f16* p, Floats v) { store_bits_past_caches(p, narrow_f16(v)); }

inline void store_fence() {
#if defined(__AVX512F__)
  _mm_sfence();
#endif
}

// Rounds v to T and converts it back.
template <class T>
inline Floats round_to(Floats v) {
  if constexpr (std::is_base_of_v<bf16, T>) return widen_bf16(narrow_bf16(v));
  if constexpr (std::is_same_v<T, f16>) return widen_f16(narrow_f16(v));
  return v;
}

// Replaces the unused lanes of v by `other`, for reductions in which zero is not neutral.
template <class Lanes>
inline Floats keep_lanes(Floats v, Lanes lanes, float other) {
  if constexpr (std::is_same_v<Lanes, Full>) return v;
  constexpr Ints kIndex{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return kIndex < static_cast<int>(lanes) ? v : splat(other);
}

// Reductions across the lanes, by a fixed tree.

inline float sum(Floats v) {
  float part[8];
  for (int i = 0; i < 8; ++i) part[i] = v[i] + v[i + 8];
  for (int i = 0; i < 4; ++i) part[i] += part[i + 4];
  return (part[0] + part[2]) + (part[1] + part[3]);
}

// Calls add(i, lanes, total), which adds the vector at i to total, for all vectors of n elements; returns the
// sum of all lanes. Vectors alternate between four totals, so that an addition need not wait for the previous
// one.
template <class Add>
[[gnu::always_inline]] inline float sum_vectors(int64_t n, Add&& add) {
  Floats a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) {
    add(i, Full{}, a);
    add(i + kWidth, Full{}, b);
    add(i + 2 * kWidth, Full{}, c);
    add(i + 3 * kWidth, Full{}, d);
  }
  for (; i + kWidth <= n; i += kWidth) add(i, Full{}, a);
  if (i < n) add(i, static_cast<int>(n - i), b);
  return sum((a + b) + (c + d));
}

inline float max(Floats v) {
  const auto a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  const auto b = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto c = a > b ? a : b;
  const auto d = __builtin_shufflevector(c, c, 0, 1, 2, 3), e = __builtin_shufflevector(c, c, 4, 5, 6, 7);
  const auto part = d > e ? d : e;
  const float even = part[0] > part[2] ? part[0] : part[2], odd = part[1] > part[3] ? part[1] : part[3];
  return even > odd ? even : odd;
}

// e * 2^n for integers n in [-126, 128] and e in [1/2, 2].
inline Floats scale_by_power_of_two(Floats e, Floats n) {
#if defined(__AVX512F__)
  return (Floats)_mm512_scalef_ps((__m512)e, (__m512)n);
#else
  // The power is split into two factors, since 2^128 overflows.
  const Ints whole = __builtin_convertvector(n, Ints), half = whole >> 1;
  const auto power = [](Ints k) { return (Floats)((Words)(k + 127) << 23); };
  return e * power(half) * power(whole - half);
#endif
}

}  // namespace flatshard::simd
