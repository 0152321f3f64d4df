#pragma once
// Functions of vectors of sixteen floats, lookups in tables of 256, and pairs of 4-bit values. The functions
// propagate NaN and return their limits at the infinities. Accuracies are in units in the last place of the
// exact value; tests/kernels/simd_test.cpp checks them. The polynomials are minimax fits of the relative
// error.

#include <array>

#include "kernels/simd.h"
#include "kernels/tanh_terms.h"

namespace flatshard::simd {

// e^x within 1.2 units (0.9 with fused multiply-add); 0 below -87.33654 (no subnormal results), infinity
// above 88.7228.
inline Floats exp(Floats x) {
  const Floats clamped = min(splat(89.0f), max(splat(-87.3365402f), x));
  // x = n ln 2 + r, |r| <= ln 2 / 2; adding and subtracting 1.5 * 2^23 rounds to an integer.
  const Floats magic = splat(12582912.0f);
  const Floats n = fma(clamped, splat(1.44269504f), magic) - magic;
  const Floats r = fma(n, splat(-1.42860677e-6f), fma(n, splat(-0.693145752f), clamped));
  // e^r = 1 + r (1 + r q(r))
  Floats q = splat(0.0013814539415761828f);
  q = fma(q, r, splat(0.00836874544620514f));
  q = fma(q, r, splat(0.04166838899254799f));
  q = fma(q, r, splat(0.1666652113199234f));
  q = fma(q, r, splat(0.4999999403953552f));
  const Floats e = fma(fma(q, r, splat(1.0f)), r, splat(1.0f));
  return x < -87.3365402f ? splat(0.0f) : scale_by_power_of_two(e, n);
}

// 1 / (1 + e^-x) within 3 units; 0 below -88.7228.
inline Floats sigmoid(Floats x) { return 1.0f / (exp(-x) + 1.0f); }

// tanh x within 3 units.
inline Floats tanh(Floats x) {
  const Floats size = abs(x), square = x * x;
  Floats p = splat(kTanh11);
  for (const float term : {kTanh9, kTanh7, kTanh5, kTanh3}) p = fma(p, square, splat(term));
  const Floats near = fma(p * square, x, x), far = 1.0f - 2.0f / (exp(size + size) + 1.0f);
  return size < kTanhNear ? near : (Floats)((Words)far | ((Words)x & 0x80000000u));
}

// The larger of |a| and |b|, with the sign of a; |b| if a is NaN.
inline Floats larger_magnitude(Floats a, Floats b) {
#if defined(__AVX512DQ__)
  constexpr int kLargerMagnitude = 3;
  return (Floats)_mm512_range_ps((__m512)a, (__m512)b, kLargerMagnitude);
#else
  return (Floats)((Words)max(abs(a), abs(b)) | ((Words)a & 0x80000000u));
#endif
}

// A table of 256 floats for lookup_bytes: the values, and byte b of value i at planes[b][i].
struct ByteTable {
  constexpr explicit ByteTable(const std::array<float, 256>& table) : values(table) {
    for (size_t i = 0; i < 256; ++i)
      for (size_t b = 0; b < 4; ++b)
        planes[b][i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(table[i]) >> (8 * b));
  }
  alignas(64) uint8_t planes[4][256] = {};
  std::array<float, 256> values;
};

// The values of 64 codes.
inline constexpr int kBytesWidth = 64;
inline std::array<Floats, 4> lookup_bytes(const uint8_t* codes, const ByteTable& table) {
#if defined(__AVX512VBMI__)
  // Transposes groups of four codes, because interleaving bytes within the quarters of a vector transposes
  // them back.
  const __m512i transposed = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  const __m512i index = _mm512_permutexvar_epi32(transposed, _mm512_loadu_si512(codes));
  const __mmask64 upper = _mm512_movepi8_mask(index);
  __m512i bytes[4];
  for (int b = 0; b < 4; ++b) {
    const auto at = [&](int i) { return _mm512_load_si512(table.planes[b] + kBytesWidth * i); };
    bytes[b] = _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(at(0), index, at(1)),
                                      _mm512_permutex2var_epi8(at(2), index, at(3)));
  }
  const __m512i low[2] = {_mm512_unpacklo_epi8(bytes[0], bytes[1]), _mm512_unpackhi_epi8(bytes[0], bytes[1])};
  const __m512i high[2] = {_mm512_unpacklo_epi8(bytes[2], bytes[3]),
                           _mm512_unpackhi_epi8(bytes[2], bytes[3])};
  return {(Floats)_mm512_unpacklo_epi16(low[0], high[0]), (Floats)_mm512_unpackhi_epi16(low[0], high[0]),
          (Floats)_mm512_unpacklo_epi16(low[1], high[1]), (Floats)_mm512_unpackhi_epi16(low[1], high[1])};
#else
  std::array<Floats, 4> y;
  for (int v = 0; v < 4; ++v)
    for (int i = 0; i < kWidth; ++i) y[v][i] = table.values[codes[v * kWidth + i]];
  return y;
#endif
}

// Loads pairs of 4-bit values from bytes, the first one in the high half. For an odd number of lanes, the
// whole last byte is read.
template <class Lanes = Full>
inline Bytes load_nibbles(const uint8_t* p, Lanes lanes = {}) {
  uint64_t word = 0;  // a partly loaded vector would stall on its store
  std::memcpy(&word, p, static_cast<size_t>((lanes + 1) / 2));
  const Bytes pairs = (Bytes)Longs{static_cast<int64_t>(word)};
  const Bytes high = pairs >> 4, low = pairs & 15;
  return __builtin_shufflevector(high, low, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

// The table's entries for the 32 4-bit values in 16 bytes.
inline TwoHalves lookup_nibbles(Halves table, const uint8_t* p) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  // The permutation reads five bits of each half: the fifth selects a copy of the table.
  const __m512i index = _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16));
  return (TwoHalves)_mm512_permutexvar_epi16(index, _mm512_broadcast_i64x4((__m256i)table));
#else
  const Halves parts[2] = {lookup(table, load_nibbles(p)), lookup(table, load_nibbles(p + kWidth / 2))};
  return std::bit_cast<TwoHalves>(parts);
#endif
}

inline Words load_words(const uint32_t* p) { return load_bits<Words>(p, Full{}); }

// 32 values, split by even and odd positions.
struct Pairs {
  Floats even, odd;
};
inline Pairs pairs_of(Floats a, Floats b) {
  return {__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
          __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)};
}
template <class T>
inline Pairs load_pairs(const T* p) {
  return pairs_of(load(p), load(p + kWidth));
}
inline Pairs load_pairs(const bf16* p) {
  const Words both = load_words(reinterpret_cast<const uint32_t*>(p));
  return {(Floats)(both << 16), (Floats)(both & 0xffff0000u)};
}

// The largest of 32 integers.
inline uint16_t max(TwoHalves v) {
  const Halves a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const Halves b =
      __builtin_shufflevector(v, v, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
  const Halves c = a > b ? a : b;
#if defined(__AVX2__)
  const __m128i d =
      _mm_max_epu16(_mm256_castsi256_si128((__m256i)c), _mm256_extracti128_si256((__m256i)c, 1));
  const __m128i complement = _mm_xor_si128(d, _mm_set1_epi16(-1));
  return static_cast<uint16_t>(~_mm_cvtsi128_si32(_mm_minpos_epu16(complement)));
#else
  uint16_t largest = 0;
  for (int i = 0; i < kWidth; ++i) largest = c[i] > largest ? c[i] : largest;
  return largest;
#endif
}

// The highest bytes of the lanes of a, then of the lanes of b.
inline Halves top_bytes(Words a, Words b) {
#if defined(__AVX512VBMI__)
  const __m512i top = _mm512_set_epi64(0, 0, 0, 0, 0x7f7b77736f6b6763, 0x5f5b57534f4b4743, 0x3f3b37332f2b2723,
                                       0x1f1b17130f0b0703);
  return (Halves)_mm512_castsi512_si256(_mm512_permutex2var_epi8((__m512i)a, top, (__m512i)b));
#else
  return std::bit_cast<Halves>(
      std::array{__builtin_convertvector(a >> 24, Bytes), __builtin_convertvector(b >> 24, Bytes)});
#endif
}

// Bits 16 to 23 of the lanes of a, then of the lanes of b.
inline Halves third_bytes(Words a, Words b) {
#if defined(__AVX512VBMI__)
  const __m512i third = _mm512_set_epi64(0, 0, 0, 0, 0x7e7a76726e6a6662, 0x5e5a56524e4a4642,
                                         0x3e3a36322e2a2622, 0x1e1a16120e0a0602);
  return (Halves)_mm512_castsi512_si256(_mm512_permutex2var_epi8((__m512i)a, third, (__m512i)b));
#else
  return std::bit_cast<Halves>(
      std::array{__builtin_convertvector(a >> 16, Bytes), __builtin_convertvector(b >> 16, Bytes)});
#endif
}

}  // namespace flatshard::simd
