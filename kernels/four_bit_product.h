#pragma once
// Products with the 4-bit weight w (out, in) of a linear layer, or with the weights of several layers, one
// below the other as one matrix:
//   y = x w^T + bias + r {.c = y, .a = x, .w = w, .bias = bias, .addend = r, .transpose_w = true}
//   dx = dy w            {.c = dx, .a = dy, .w = w}
// w is dequantized to the compute dtype, and a and the bias are rounded to it; c is rounded once from fp32
// sums, to its own dtype. The result has the bits of gemm() with a dequantized copy of w. On the CPU w is
// never copied as a whole: it is decoded in panels, each used by all rows of tiles, or for at most kFewRows
// rows (decode, gemm_rows.h) by a few rows or columns at a time, within the caches. On a GPU w is dequantized
// into scratch.

#include <optional>
#include <vector>

#include "kernels/four_bit.h"
#include "runtime/arena.h"

namespace flatshard {

struct FourBitProduct {
  Tensor c;                      // (M, N), any float dtype
  Tensor a;                      // (M, K), any float dtype
  std::vector<FourBitMatrix> w;  // at least one, all with the same number of columns
  Tensor bias{};                 // (N), any float dtype, or empty
  Tensor addend{};               // see Gemm, also for the strides
  bool transpose_w = false;      // N = out and K = in; otherwise N = in and K = out
  bool accumulate = false;
  std::optional<DType> compute{};  // dtype of the products; empty: the dtype of a
  bool tf32 = false;               // see Gemm
  int64_t a_stride = 0, c_stride = 0;
};

void four_bit_product(Stream& stream, Arena& scratch, const FourBitProduct& p);

double min_bytes(const FourBitProduct& p);
double flops(const FourBitProduct& p);

}  // namespace flatshard
