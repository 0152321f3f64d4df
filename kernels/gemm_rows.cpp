#include "kernels/gemm_rows.h"

#include <algorithm>

#include "kernels/tile_product.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

using namespace simd;
using tile::detail::unroll;
using tile::detail::with_constant;

constexpr int64_t kTaskBytes = 64 << 10;  // bytes of b per task, enough to make scheduling cheap
// The tile of c whose sums the registers hold: rows, and columns or vectors of columns. Up to kRows rows of a
// are bound by memory, so rows of b are read one after another, at the full bandwidth; more rows are bound by
// arithmetic, and wider tiles load less. A product of one row with b (K, N) has wider tiles for the same
// reason.
constexpr int kRows = 4, kColumns = 4, kVectorsOfOneRow = 8;

// The operands of a product as arrays.
template <class T, class Out>
struct Operands {
  Operands(const Gemm& g, const FewColumns& columns)
      : c(g.c.as<Out>()),
        addend(addend_of(g).empty() ? nullptr : addend_of(g).as<Out>()),
        a(g.a.as<T>()),
        b(static_cast<const T*>(columns.b)),
        b_row(columns.b_row),
        first_column(columns.begin),
        bias(g.bias.empty() ? nullptr : g.bias.as<T>()),
        M(g.a.shape[0]),
        N(g.c.shape[1]),
        K(g.a.shape[1]),
        a_row(strides_of(g).a),
        c_row(strides_of(g).c),
        alpha(g.alpha) {}

  Out* c;
  const Out* addend;
  const T *a, *b;
  int64_t b_row, first_column;  // row length and first column of b
  const T* bias;
  int64_t M, N, K, a_row, c_row;
  float alpha;

  template <class Lanes>
  [[gnu::always_inline]] void store_sums(int64_t row, int64_t column, Floats sums, Lanes lanes) const {
    sums *= splat(alpha);
    if (bias) sums += load(bias + column, lanes);
    if (addend) sums += load(addend + row * c_row + column, lanes);
    store(c + row * c_row + column, sums, lanes);
  }
};

// The tile for b (N, K): an element is the dot product of two rows. Its lanes are summed at the end.
template <class T, class Out, int kR, int kC>
void dot_tile(const Operands<T, Out>& o, int64_t row, int64_t column) {
  constexpr int64_t kStep = int64_t{kWidth} * tile::kPerWord<T>;
  using Whole = std::integral_constant<int64_t, kStep>;
  const T *a = o.a + row * o.a_row, *b = o.b + (column - o.first_column) * o.b_row;
  Floats sums[kR][kC]{};
  const auto add = [&](int64_t k, auto values) __attribute__((always_inline)) {
    Ints rows[kR];
    unroll<kR>([&](auto r)
                   __attribute__((always_inline)) { rows[r] = tile::words_of(a + r * o.a_row + k, values); });
    unroll<kC>([&](auto i) __attribute__((always_inline)) {
      const Ints column_words = tile::words_of(b + i * o.b_row + k, values);
      unroll<kR>([&](auto r) __attribute__((always_inline)) {
        sums[r][i] = tile::detail::multiply_add<T>(rows[r], column_words, sums[r][i]);
      });
    });
  };
  int64_t k = 0;
  for (; k + kStep <= o.K; k += kStep) add(k, Whole{});
  if (k < o.K) add(k, o.K - k);
  unroll<kR>([&](auto r) __attribute__((always_inline)) {
    Floats row_sums{};
    unroll<kC>([&](auto i) __attribute__((always_inline)) { row_sums[int{i}] = sum(sums[r][i]); });
    o.store_sums(row + r, column, row_sums, int{kC});
  });
}

// The tile for b (K, N): the lanes of a vector are columns, and each is summed in the order of k.
template <class T, class Out, int kR, int kVectors, class Lanes>
void column_tile(const Operands<T, Out>& o, int64_t row, int64_t column, Lanes lanes) {
  const T *a = o.a + row * o.a_row, *b = o.b + (column - o.first_column);
  Floats sums[kR][kVectors]{};
  for (int64_t k = 0; k < o.K; ++k) {
    Floats columns[kVectors];
    unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
      columns[v] = load(b + k * o.b_row + v * kWidth, lanes);
    });
    unroll<kR>([&](auto r) __attribute__((always_inline)) {
      const Floats value = splat(static_cast<float>(a[r * o.a_row + k]));
      unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
        sums[r][v] = fma(value, columns[v], sums[r][v]);
      });
    });
  }
  unroll<kR>([&](auto r) __attribute__((always_inline)) {
    unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
      o.store_sums(row + r, column + v * kWidth, sums[r][v], lanes);
    });
  });
}

// Calls tile(row, rows) for tiles of at most kRows rows, with the number of rows as a compile-time constant.
template <class Tile>
void for_each_rows(int64_t M, Tile&& tile) {
  for (int64_t row = 0; row < M; row += kRows)
    with_constant<kRows>(M - row, [&](auto rows) { tile(row, rows); });
}

// `step` is the number of rows of b, which are columns of c, that are read at a time: at most kColumns.
template <class T, class Out>
void multiply_dots(const Operands<T, Out>& o, int64_t begin, int64_t end, int64_t step) {
  for (int64_t column = begin; column < end; column += step)
    for_each_rows(o.M, [&](int64_t row, auto rows) {
      with_constant<kColumns>(std::min(step, end - column),
                              [&](auto count) { dot_tile<T, Out, rows, count>(o, row, column); });
    });
}

template <class T, class Out>
void multiply_columns(const Operands<T, Out>& o, int64_t begin, int64_t end) {
  constexpr auto vectors = [](int rows) { return rows == 1 ? kVectorsOfOneRow : kColumns; };
  const int64_t step = kWidth * vectors(o.M == 1 ? 1 : kRows);
  for (int64_t column = begin; column < end; column += step)
    for_each_rows(o.M, [&](int64_t row, auto rows) {
      const int64_t whole = std::min(step, end - column) / kWidth,
                    rest = std::min(step, end - column) % kWidth;
      if (whole > 0)
        with_constant<vectors(rows)>(
            whole, [&](auto count) { column_tile<T, Out, rows, count>(o, row, column, Full{}); });
      if (rest > 0) column_tile<T, Out, rows, 1>(o, row, column + whole * kWidth, static_cast<int>(rest));
    });
}

void multiply(const Gemm& g, const FewColumns& columns, int64_t step) {
  visit_float(g.a.dtype, [&]<class T>() {
    visit_float(g.c.dtype, [&]<class Out>() {
      if constexpr (!std::is_same_v<T, f16> && !std::is_same_v<Out, f16>) {
        const Operands<T, Out> operands(g, columns);
        g.transpose_b ? multiply_dots(operands, columns.begin, columns.end, step)
                      : multiply_columns(operands, columns.begin, columns.end);
      }
    });
  });
}

}  // namespace

bool has_few_rows(const Gemm& g) {
  return !g.transpose_a && g.a.shape[0] <= kFewRows && g.a.dtype != DType::f16;
}

int64_t few_rows_unit(const Gemm& g) { return g.transpose_b ? kColumns : int64_t{kWidth} * kVectorsOfOneRow; }

void multiply_few_rows(const Gemm& g, const FewColumns& columns) { multiply(g, columns, kColumns); }

void multiply_few_rows(const Gemm& g) {
  const int64_t N = g.c.shape[1], column_bytes = g.b.bytes() / std::max<int64_t>(N, 1);
  const int64_t unit = few_rows_unit(g), b_row = strides_of(g).b;
  const int64_t block = std::max<int64_t>(1, kTaskBytes / std::max<int64_t>(1, column_bytes * unit)) * unit;
  parallel_blocks(N, block, [&](int64_t begin, int64_t end) {
    const int64_t first = (g.transpose_b ? begin * b_row : begin) * size_of(g.b.dtype);
    multiply(g, {.b = static_cast<const char*>(g.b.data) + first, .b_row = b_row, .begin = begin, .end = end},
             g.a.shape[0] <= kRows ? 1 : kColumns);
  });
}

}  // namespace flatshard
