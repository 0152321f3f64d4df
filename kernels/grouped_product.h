#pragma once
// Products of segments of rows, each with a matrix of its own, as experts need them. Segment e has rows
// [offsets[e], offsets[e + 1]), a multiple of kSegmentRows, perhaps none. The offsets are on the device, and
// nothing on the host depends on them: a call can be planned and captured before they are known.
//
//   y = x w_e^T      {.c = y, .a = x, .b = w, .transpose_b = true}     y (R, N), x (R, K), w (E, N, K)
//   dx = dy w_e      {.c = dx, .a = dy, .b = w}                        dx (R, K), dy (R, N)
//   dw_e += dy^T x   {.c = dw, .a = dy, .b = x, .transpose_a = true, .accumulate = true}
//
// With `rows`, x is the matrix of all tokens, and its row rows[r] stands for row r, or zeros where rows[r] is
// negative; so the rows of tokens need not be copied to their segments. Rows of y and dx behind the last
// segment become zero, and so does dw of a segment without rows; with accumulate they keep their values.
//
// A row of y or dx depends on that row of a alone; on the CPU its bits also depend on its place in its
// segment and on how many rows of it are used, unless segments have at most kFewRows rows (gemm_rows.h). The
// sums of dw begin at the segment's first row. On a GPU it takes sm_90 and operands of 16 bits whose rows
// begin at multiples of 16 bytes.

#include "kernels/gemm.h"
#include "kernels/product_end.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

inline constexpr int64_t kSegmentRows = 64;

struct GroupedProduct {
  Tensor c{};      // (R, N) of a's dtype; with transpose_a (E, M, N), of a's dtype or f32
  Tensor a;        // (R, K); with transpose_a (R, M)
  Tensor b{};      // (E, K, N), with transpose_b (E, N, K); with transpose_a (R, N)
  Tensor offsets;  // (E + 1) i32, ascending from 0 to at most R; R is a multiple of kSegmentRows
  Tensor rows{};   // (R) i32 or empty: gathers the rows of x, which is a, or b with transpose_a; not for dx
  // (R) i32 or empty: the rows of a at the end of a segment whose numbers are negative are zero; the CPU need
  // not multiply them. Empty: those of `rows`, if there are any.
  Tensor used{};
  bool transpose_a = false, transpose_b = false;  // not both
  bool accumulate = false;                        // adds the previous c
  float alpha = 1;                                // a factor of the product
  // Elements between the beginnings of the E matrices; 0: each follows the one before.
  int64_t between = 0;
  // The most rows that a segment of a begins with, where all others of it are zero; 0: unknown.
  int64_t most_rows = 0;
  // Elements between rows of matrices of R rows, and of the tokens' rows; 0: they are contiguous.
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  ProductEnd end{};  // not with transpose_a or accumulate, of whole rows
};

// The elements between rows of each matrix.
GemmStrides strides_of(const GroupedProduct& g);

void grouped_product(Stream& stream, Arena& scratch, const GroupedProduct& g);

// Of all rows, as if they were all in segments.
double min_bytes(const GroupedProduct& g);
double flops(const GroupedProduct& g);

namespace cuda {
// What the kernel supports, and what it can end with; no GPU is asked.
bool multiplies_groups_on_sm90(const GroupedProduct& g);
bool ends_groups_on_sm90(const GroupedProduct& g);
// A build without code for sm_90 contains grouped_product_sm90_missing.cpp instead.
void grouped_product_sm90(Stream& stream, const GroupedProduct& g);
}  // namespace cuda

}  // namespace flatshard
