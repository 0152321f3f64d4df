#pragma once
// Functions of vectors of sixteen floats, and lookups in tables of 256. The functions propagate NaN and
// return their limits at the infinities. Accuracies are in units in the last place of the exact value;
// tests/kernels/simd_test.cpp checks them. The polynomials are minimax fits of the relative error.

#include <array>

#include "kernels/simd.h"

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

// y[i] = table[codes[i]] for 64 codes.
inline constexpr int kBytesWidth = 64;
inline void lookup_bytes(float* y, const uint8_t* codes, const ByteTable& table) {
#if defined(__AVX512VBMI__)
  // Interleaving bytes within the quarters of a vector transposes groups of four codes; so does this.
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
  for (int i = 0; i < 2; ++i) {
    _mm512_storeu_si512(y + 2 * i * kWidth, _mm512_unpacklo_epi16(low[i], high[i]));
    _mm512_storeu_si512(y + (2 * i + 1) * kWidth, _mm512_unpackhi_epi16(low[i], high[i]));
  }
#else
  for (int i = 0; i < kBytesWidth; ++i) y[i] = table.values[codes[i]];
#endif
}

}  // namespace flatshard::simd
