#pragma once
// Matrices whose rows may lie further apart in memory than they are wide, such as the columns of one layer in
// a packed projection (kernels/packed.h), or a layer's input with spare columns behind it (linear.h); and
// their products.

#include "kernels/packed.h"
#include "kernels/product_end.h"
#include "model/layer_call.h"

namespace flatshard {

// Columns [begin, begin + width) of the matrix `of`; a matrix converts to all of its columns.
struct Rows {
  Rows() = default;
  Rows(const Tensor& matrix) : of(matrix), width(matrix.shape[-1]) {}
  Rows(const Tensor& matrix, int64_t first_column, int64_t columns)
      : of(matrix), begin(first_column), width(columns) {}

  int64_t count() const { return of.shape[0]; }
  int64_t stride() const { return of.shape[-1]; }  // elements between rows
  // The tensor (count, width) for an op that takes the stride with it.
  Tensor values() const { return width == stride() ? of : packed_columns(of, begin, {count(), width}); }
  Rows columns(int64_t first, int64_t n) const { return {of, begin + first, n}; }
  Rows slice(int64_t first, int64_t end) const { return {of.slice(first, end), begin, width}; }

  Tensor of;
  int64_t begin = 0, width = 0;
};

// c = alpha a b: a Gemm (kernels/gemm.h) of rows.
struct Product {
  Rows c, a, b;
  Tensor bias{};
  Rows addend{};
  bool transpose_a = false, transpose_b = false, accumulate = false;
  float alpha = 1;
  ProductEnd end{};
};
void gemm(LayerCall& c, const Product& product);

}  // namespace flatshard
