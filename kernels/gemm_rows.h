#pragma once
// Products with few rows, c (M, N) = a (M, K) b, M <= kFewRows: the decode path, which reads every weight
// once per token and is bound by memory. The operands are read in place. Each element of c is summed in one
// order that depends only on K, so the bits of a row are the same for any M.

#include "kernels/gemm.h"

namespace flatshard {

inline constexpr int64_t kFewRows = 16;

// Returns whether gemm() computes this product by multiply_few_rows().
bool has_few_rows(const Gemm& g);

// Computes the product on all threads. K is at least 1.
void multiply_few_rows(const Gemm& g);

// Columns [begin, end) of c, and the part of b for them: rows of b^T with transpose_b, otherwise columns.
struct FewColumns {
  const void* b;
  int64_t b_row;  // elements between the rows of this part
  int64_t begin, end;
};
// Computes these columns on this thread, with the same bits, from a part of b in the caches.
void multiply_few_rows(const Gemm& g, const FewColumns& columns);
// Multiples of this number of columns are computed fastest.
int64_t few_rows_unit(const Gemm& g);

}  // namespace flatshard
