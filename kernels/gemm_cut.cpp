#include "kernels/gemm_cut.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "kernels/gemm_widened.h"

namespace flatshard {

// A prepared tile product, in the tile's own dtype or widened to f32.
class PreparedTile {
 public:
  PreparedTile(const GemmTile& tile, bool widens) {
    if (widens)
      widened_.emplace(tile);
    else
      product_ = make_tile(tile);
  }
  int64_t scratch_bytes() const {
    return widened_ ? widened_->scratch_bytes() : tile_scratch_bytes(*product_);
  }
  void run(const TileData& data) const { widened_ ? widened_->run(data) : run_tile(*product_, data); }

 private:
  std::shared_ptr<TileProduct> product_;
  std::optional<WidenedTile> widened_;
};

namespace {

// The rows and columns of a tile of c, which depend only on the shape. Tiles are large enough to amortize
// packing of the operands, and numerous enough to balance the threads.
struct Cut {
  int64_t rows, columns;
};

Cut cut(const GemmExtents& e) {
  constexpr int64_t kTile = 512, kStep = 32;
  constexpr double kFlopsWorthATile = 4e6;
  // The size of one of `count` equal pieces, a multiple of kStep.
  const auto pieces = [](int64_t extent, int64_t count) {
    const int64_t piece = (extent + count - 1) / count;
    return std::min(extent, (piece + kStep - 1) / kStep * kStep);
  };
  const double work = 2.0 * static_cast<double>(e.M) * static_cast<double>(e.N) * static_cast<double>(e.K);
  const double wanted = std::clamp(work / kFlopsWorthATile, 1.0, 8.0);
  int64_t in_rows = (e.M + kTile - 1) / kTile, in_columns = (e.N + kTile - 1) / kTile;
  while (static_cast<double>(in_rows * in_columns) < wanted) {
    const bool split_columns = e.N / in_columns >= e.M / in_rows;
    if ((split_columns ? e.N / in_columns : e.M / in_rows) < 2 * kStep) break;
    ++(split_columns ? in_columns : in_rows);
  }
  return {pieces(e.M, in_rows), pieces(e.N, in_columns)};
}

// The prepared tile of this shape, which is kept for the life of the program.
const PreparedTile& prepared(const GemmTile& tile) {
  static std::mutex mutex;
  static std::map<GemmTile, PreparedTile> products, widened;
  const bool widens = tile.in == DType::bf16 && bf16_products().tiles == Bf16Products::widened;
  const std::lock_guard lock(mutex);
  return (widens ? widened : products).try_emplace(tile, tile, widens).first->second;
}

const char* at(const Tensor& t, int64_t element) {
  return static_cast<const char*>(t.data) + element * size_of(t.dtype);
}

}  // namespace

GemmExtents extents_of(const Gemm& g) {
  return {g.a.shape[g.transpose_a ? 1 : 0], g.b.shape[g.transpose_b ? 0 : 1],
          g.a.shape[g.transpose_a ? 0 : 1]};
}

CutProduct::CutProduct(const Gemm& g, int64_t panel_row)
    : g_(g),
      e_(extents_of(g)),
      strides_(strides_of(g)),
      panel_row_(panel_row),
      tile_rows_(cut(e_).rows),
      tile_columns_(cut(e_).columns),
      rows_((e_.M + tile_rows_ - 1) / tile_rows_),
      columns_((e_.N + tile_columns_ - 1) / tile_columns_) {
  for (const bool last_row : {false, true})
    for (const bool last_column : {false, true}) {
      const PreparedTile*& product = products_[2 * last_row + last_column];
      product = &prepared(shape_of(last_row ? rows_ - 1 : 0, last_column ? columns_ - 1 : 0));
      scratch_bytes_ = std::max(scratch_bytes_, product->scratch_bytes());
    }
}

int64_t CutProduct::tile_columns(const GemmExtents& e) { return cut(e).columns; }

int64_t CutProduct::end_column(int64_t column) const { return std::min(first_column(column + 1), e_.N); }

void CutProduct::run(const Tensor& scratch) const {
  run(0, columns_, scratch, [&](int64_t column) {
    const int64_t j = first_column(column);
    return at(g_.b, g_.transpose_b ? j * panel_row_ : j);
  });
}

GemmTile CutProduct::shape_of(int64_t row, int64_t column) const {
  return {.M = std::min(tile_rows_, e_.M - row * tile_rows_),
          .N = std::min(tile_columns_, e_.N - column * tile_columns_),
          .K = e_.K,
          .lda = strides_.a,
          .ldb = panel_row_,
          .ldc = strides_.c,
          .in = g_.a.dtype,
          .out = g_.c.dtype,
          .transpose_a = g_.transpose_a,
          .transpose_b = g_.transpose_b,
          .bias = !g_.bias.empty(),
          .accumulate = !addend_of(g_).empty(),
          .alpha = g_.alpha};
}

void CutProduct::run_tile(int64_t row, int64_t column, const void* b, void* scratch) const {
  const int64_t i = row * tile_rows_, j = first_column(column), first = i * strides_.c + j;
  if (!g_.addend.empty()) copy_addend(row, column, first);
  products_[2 * (row == rows_ - 1) + (column == columns_ - 1)]->run(
      {.c = const_cast<char*>(at(g_.c, first)),
       .a = at(g_.a, g_.transpose_a ? i : i * strides_.a),
       .b = b,
       .bias = g_.bias.empty() ? nullptr : at(g_.bias, j),
       .scratch = scratch});
}

void CutProduct::copy_addend(int64_t row, int64_t column, int64_t first) const {
  const GemmTile tile = shape_of(row, column);
  for (int64_t r = 0; r < tile.M; ++r)
    std::memcpy(const_cast<char*>(at(g_.c, first + r * tile.ldc)), at(g_.addend, first + r * tile.ldc),
                static_cast<size_t>(tile.N * size_of(tile.out)));
}

}  // namespace flatshard
