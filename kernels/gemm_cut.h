#pragma once
// A product of f32 or bf16 matrices on the CPU, cut into tiles (gemm_tile.h). The cut depends only on the
// shape. b is read in panels, the part of b that the tiles of one column of tiles share, so that a caller may
// compute a panel when it is needed.

#include <array>

#include "kernels/gemm.h"
#include "kernels/gemm_tile.h"
#include "runtime/parallel.h"

namespace flatshard {

// The sizes of c (M, N) = a (M, K) b (K, N), after the transpositions.
struct GemmExtents {
  int64_t M, N, K;
};
GemmExtents extents_of(const Gemm& g);

class PreparedTile;

class CutProduct {
 public:
  // `panel_row` is the number of elements between the rows of a panel; a row of a panel is a row of b or part
  // of one.
  CutProduct(const Gemm& g, int64_t panel_row);

  // The same product on the data of `g`, which is alike otherwise.
  CutProduct on(const Gemm& g) const {
    CutProduct other = *this;
    other.g_ = g;
    return other;
  }

  // The number of columns of tiles. Column `column` computes columns [first_column(), end_column()) of c.
  int64_t columns() const { return columns_; }
  int64_t first_column(int64_t column) const { return column * tile_columns_; }
  int64_t end_column(int64_t column) const;
  // The number of columns of c in a tile; the last tile may have fewer.
  static int64_t tile_columns(const GemmExtents& e);

  int64_t scratch_bytes() const { return (scratch_bytes_ + 63) / 64 * 64; }  // scratch per thread

  // Computes the tiles of columns [begin, end), with the b of column i at panel(i).
  template <class Panel>
  void run(int64_t begin, int64_t end, const Tensor& scratch, Panel&& panel) const {
    parallel_for(rows_ * (end - begin), [&](int64_t task, int worker) {
      const int64_t row = task / (end - begin), column = begin + task % (end - begin);
      run_tile(row, column, panel(column), scratch.as<uint8_t>() + worker * scratch_bytes());
    });
    check_tiles();
  }
  // Computes c from the b in memory. `scratch` has scratch_bytes() per thread.
  void run(const Tensor& scratch) const;

 private:
  GemmTile shape_of(int64_t row, int64_t column) const;
  void run_tile(int64_t row, int64_t column, const void* b, void* scratch) const;
  // Copies the addend of a tile to c. It stays in a cache until the tile adds to it.
  void copy_addend(int64_t row, int64_t column, int64_t first) const;

  Gemm g_;
  GemmExtents e_;
  GemmStrides strides_;
  int64_t panel_row_, tile_rows_, tile_columns_;
  int64_t rows_ = 0, columns_ = 0, scratch_bytes_ = 0;
  // There are at most four tile shapes: full, at the right edge, at the lower edge, and in the corner.
  std::array<const PreparedTile*, 4> products_{};
};

}  // namespace flatshard
