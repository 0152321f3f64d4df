#pragma once
// Products of matrices that fit the caches of a processor, c (M, N) = a (M, K) b (K, N), and the packing of
// their operands: the inner loop of ops that consist of matrix products.
//
// Operands are arrays of 32-bit words along k. A word is one f32, or two neighboring bf16 on processors that
// multiply pairs of them (AVX512-BF16: exact products, fp32 sums, subnormals flushed to zero); f16, and bf16
// on other processors, are widened to f32. Computed values are rounded to the storage type T in either case.
//
// Each element of c is summed in the order of k, for any tile shape, M and N: its bits depend only on its row
// of a and its column of b, and splitting k over two calls gives the bits of one.

#include <algorithm>
#include <utility>

#include "kernels/bf16_products.h"
#include "kernels/simd.h"

namespace flatshard::tile {

using simd::Floats;
using simd::Halves;
using simd::Ints;
using simd::kWidth;
using Word = int32_t;

// bf16 whose words are widened to f32, for processors that multiply pairs slowly.
struct widened_bf16 : bf16 {
  using bf16::bf16;
};

// Values along k in one word of an operand of storage type T.
template <class T>
inline constexpr int kPerWord = 1;
#if defined(__AVX512BF16__)
template <>
inline constexpr int kPerWord<bf16> = 2;
#endif

// Calls f.operator()<T>() with the storage type of attention's operands of this dtype (bf16_products.h).
template <class F>
decltype(auto) visit_operand(DType dtype, F&& f) {
  if constexpr (kPerWord<bf16> == 2)
    if (dtype == DType::bf16 && bf16_products().attention == Bf16Products::widened)
      return f.template operator()<widened_bf16>();
  return visit_float(dtype, f);
}

// The number of words for n values along k; the last one is padded with zero.
template <class T>
constexpr int64_t words(int64_t n) {
  return (n + kPerWord<T> - 1) / kPerWord<T>;
}

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// The accumulators of the inner loop: as many as fit the registers next to one row of b. With AVX2 a vector
// is two registers.
#if defined(__AVX512F__)
inline constexpr int kTileRows = 6, kTileVectors = 4;
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr int kTileRows = 6, kTileVectors = 1;
#else
inline constexpr int kTileRows = 3, kTileVectors = 2;
#endif

namespace detail {

// Calls body(0), ..., body(N - 1) with the index as a compile-time constant.
template <int N, class Body>
[[gnu::always_inline]] inline void unroll(Body&& body) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (body(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

// Calls body(n), n in [1, kMax], with n as a compile-time constant.
template <int kMax, class Body>
inline void with_constant(int64_t n, Body&& body) {
  if constexpr (kMax > 1)
    if (n < kMax) return with_constant<kMax - 1>(n, body);
  body(std::integral_constant<int, kMax>{});
}

template <class T>
[[gnu::always_inline]] inline Floats multiply_add(Ints a, Ints b, Floats c) {
#if defined(__AVX512BF16__)
  if constexpr (kPerWord<T> == 2) return (Floats)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
#endif
  return simd::fma((Floats)a, (Floats)b, c);
}

[[gnu::always_inline]] inline Ints load_words(const Word* p) {
  Ints v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
[[gnu::always_inline]] inline void store_words(Word* p, Ints v) { std::memcpy(p, &v, sizeof v); }

}  // namespace detail

// a(m, k) = at[m * row + k * step]: packed rows have step 1, packed columns have row 1.
struct Left {
  const Word* at;
  int64_t row, step;
};
// b(k, n) = at[k * row + n]
struct Right {
  const Word* at;
  int64_t row;
};
struct Result {
  float* at;
  int64_t row;
};

namespace detail {

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
// The same with registers by name: GCC keeps Floats, which are wider, in memory.
template <class T, int kRows, int kVectors>
void multiply_tile(Result c, int64_t K, Left a, Right b, bool accumulate) {
  constexpr int kRegister = 8, kColumns = kVectors * kWidth / kRegister;
  __m256 sums[kRows][kColumns];
  unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    unroll<kColumns>([&](auto v) __attribute__((always_inline)) {
      sums[r][v] = accumulate ? _mm256_loadu_ps(c.at + r * c.row + v * kRegister) : _mm256_setzero_ps();
    });
  });
  for (int64_t k = 0; k < K; ++k) {
    __m256 columns[kColumns];
    unroll<kColumns>([&](auto v) __attribute__((always_inline)) {
      columns[v] = _mm256_castsi256_ps(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b.at + k * b.row + v * kRegister)));
    });
    unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      const __m256 row = _mm256_castsi256_ps(_mm256_set1_epi32(a.at[r * a.row + k * a.step]));
      unroll<kColumns>([&](auto v) __attribute__((always_inline)) {
        sums[r][v] = _mm256_fmadd_ps(row, columns[v], sums[r][v]);
      });
    });
  }
  unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    unroll<kColumns>([&](auto v) __attribute__((always_inline)) {
      _mm256_storeu_ps(c.at + r * c.row + v * kRegister, sums[r][v]);
    });
  });
}
#else
template <class T, int kRows, int kVectors>
void multiply_tile(Result c, int64_t K, Left a, Right b, bool accumulate) {
  Floats sums[kRows][kVectors];
  unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
      sums[r][v] = accumulate ? simd::load(c.at + r * c.row + v * kWidth) : Floats{};
    });
  });
  for (int64_t k = 0; k < K; ++k) {
    Ints columns[kVectors];
    unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
      columns[v] = load_words(b.at + k * b.row + v * kWidth);
    });
    unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      const Ints row = Ints{} + a.at[r * a.row + k * a.step];
      unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
        sums[r][v] = multiply_add<T>(row, columns[v], sums[r][v]);
      });
    });
  }
  unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
      simd::store(c.at + r * c.row + v * kWidth, sums[r][v]);
    });
  });
}
#endif

}  // namespace detail

// c = a b, or c += a b. K counts words; N is a multiple of kWidth.
template <class T>
void multiply(Result c, int64_t M, int64_t N, int64_t K, Left a, Right b, bool accumulate) {
  for (int64_t n = 0; n < N; n += kTileVectors * kWidth)
    detail::with_constant<kTileVectors>((N - n) / kWidth, [&](auto vectors) {
      for (int64_t m = 0; m < M; m += kTileRows)
        detail::with_constant<kTileRows>(M - m, [&](auto rows) {
          detail::multiply_tile<T, rows, vectors>({c.at + m * c.row + n, c.row}, K,
                                                  {a.at + m * a.row, a.row, a.step}, {b.at + n, b.row},
                                                  accumulate);
        });
    });
}

// Packing. Lanes and words past the matrix are zero.

// The words of two rows along k: lane i holds (even[i], odd[i]) rounded to T. Requires kPerWord<T> == 2.
template <class T>
[[gnu::always_inline]] inline Ints pair_words(Floats even, Floats odd) {
#if defined(__AVX512BF16__)
  static_assert(kPerWord<T> == 2);
  const auto interleave = []<int... i>(std::integer_sequence<int, i...>) {
    using Shorts [[gnu::vector_size(64)]] = int16_t;
    return Shorts{static_cast<int16_t>(i / 2 + i % 2 * kWidth)...};
  }
  (std::make_integer_sequence<int, 2 * kWidth>{});
  return (Ints)_mm512_permutexvar_epi16((__m512i)interleave,
                                        (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even));
#else
  static_assert(sizeof(T) == 0, "no pairs on this processor");
  return (Ints)even + (Ints)odd;
#endif
}

// Stores sixteen values along k, rounded to T, as 16 / kPerWord<T> words.
template <class T>
[[gnu::always_inline]] inline void store_along(Word* out, Floats v) {
#if defined(__AVX512BF16__)
  if constexpr (kPerWord<T> == 2) {
    const auto halves = _mm512_cvtneps_pbh((__m512)v);
    std::memcpy(out, &halves, sizeof halves);
    return;
  }
#endif
  detail::store_words(out, (Ints)simd::round_to<T>(v));
}

// Stores rows r and r + 1, where k runs down the rows, at words(r) of the packed rows `out` of `width` words.
template <class T>
[[gnu::always_inline]] inline void store_down(Word* out, int64_t width, Floats first, Floats second) {
  if constexpr (kPerWord<T> == 2) {
    detail::store_words(out, pair_words<T>(first, second));
  } else {
    detail::store_words(out, (Ints)simd::round_to<T>(first));
    detail::store_words(out + width, (Ints)simd::round_to<T>(second));
  }
}

// Packs in (rows, n), rows `stride` apart, with k along a row, into out (rows, words(n)).
template <class T>
void pack_along(Word* out, const T* in, int64_t stride, int64_t rows, int64_t n) {
  const int64_t width = words<T>(n);
  for (int64_t r = 0; r < rows; ++r) {
    if constexpr (kPerWord<T> == 2) {
      if (n % 2 != 0) out[r * width + width - 1] = 0;
      std::memcpy(out + r * width, in + r * stride, static_cast<size_t>(n) * sizeof(T));
    } else {
      simd::for_each_vector(n, [&](int64_t i, auto lanes) {
        simd::store(reinterpret_cast<float*>(out) + r * width + i, simd::load(in + r * stride + i, lanes),
                    lanes);
      });
    }
  }
}

// Packs in (rows, n), with k down the rows, into out (words(rows), width), width = n rounded up to full
// vectors.
template <class T>
void pack_down(Word* out, const T* in, int64_t stride, int64_t rows, int64_t n) {
  const int64_t width = round_up(n, kWidth);
  for (int64_t r = 0; r < rows; r += kPerWord<T>)
    simd::for_each_vector(n, [&](int64_t i, auto lanes) {
      const Floats first = simd::load(in + r * stride + i, lanes);
      Word* at = out + r / kPerWord<T> * width + i;
      if constexpr (kPerWord<T> == 2)
        detail::store_words(
            at, pair_words<T>(first, r + 1 < rows ? simd::load(in + (r + 1) * stride + i, lanes) : Floats{}));
      else
        detail::store_words(at, (Ints)first);
    });
}

// Adds a row of n values to the row of words `out`, as the second values of its pairs. Requires
// kPerWord<T> == 2.
template <class T>
void complete_pairs(Word* out, const T* in, int64_t n) {
  static_assert(kPerWord<T> == 2);
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<Word>((static_cast<uint32_t>(out[i]) & 0xffffu) | static_cast<uint32_t>(in[i].bits)
                                                                               << 16);
}

// Transposes sixteen rows of sixteen words: swaps blocks of 1, 2, 4 and 8 words across the diagonal.
[[gnu::always_inline]] inline void transpose(Ints (&rows)[kWidth]) {
  detail::unroll<4>([&](auto stage) __attribute__((always_inline)) {
    constexpr int kBlock = 1 << stage;
    detail::unroll<kWidth / 2>([&](auto pair) __attribute__((always_inline)) {
      constexpr int r = pair / kBlock * 2 * kBlock + pair % kBlock;
      const Ints a = rows[r], b = rows[r + kBlock];
      [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
        rows[r] = __builtin_shufflevector(a, b, (i & kBlock ? kWidth + i - kBlock : i)...);
        rows[r + kBlock] = __builtin_shufflevector(a, b, (i & kBlock ? kWidth + i : i + kBlock)...);
      }
      (std::make_integer_sequence<int, kWidth>{});
    });
  });
}

// Loads `values` values along k, at most one vector of words.
template <class T, class Count>
[[gnu::always_inline]] inline Ints words_of(const T* in, Count values) {
  if constexpr (kPerWord<T> == 2) {
    Ints v{};
    std::memcpy(&v, in, static_cast<size_t>(values) * sizeof(T));
    return v;
  } else {
    if constexpr (std::is_same_v<Count, int64_t>) return (Ints)simd::load(in, static_cast<int>(values));
    return (Ints)simd::load(in);
  }
}

// Packs the transpose of in (rows, n), with k along a row, into out (words(n), width), and writes
// round_up(rows, kWidth) columns.
template <class T>
void pack_transposed(Word* out, int64_t width, const T* in, int64_t stride, int64_t rows, int64_t n) {
  constexpr int64_t kBlock = int64_t{kWidth} * kPerWord<T>;  // values in a vector of words
  using Whole = std::integral_constant<int64_t, kBlock>;
  for (int64_t first = 0; first < rows; first += kWidth)
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t height = std::min<int64_t>(kWidth, rows - first), values = std::min(kBlock, n - i);
      const T* at = in + first * stride + i;
      Ints block[kWidth];
      detail::unroll<kWidth>([&](auto r) __attribute__((always_inline)) {
        if (r >= height)
          block[r] = Ints{};
        else if (values == kBlock)
          block[r] = words_of(at + r * stride, Whole{});
        else
          block[r] = words_of(at + r * stride, values);
      });
      transpose(block);
      Word* column = out + i / kPerWord<T> * width + first;
      for (int64_t w = 0; w < words<T>(values); ++w) detail::store_words(column + w * width, block[w]);
    }
}

}  // namespace flatshard::tile

namespace flatshard {

template <>
inline constexpr DType dtype_of<tile::widened_bf16> = DType::bf16;

}  // namespace flatshard
