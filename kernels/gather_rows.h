#pragma once
// Rows by their number, in N rows of width W:
//   gather_rows:  y[i] = x[index[i]], or zero where index[i] is negative
//   scatter_rows: y[index[i]] = x[i], or with `add` y[index[i]] += x[i]; skips a negative index
// Numbers may repeat in a gather. In a scatter they are unique, which is not checked: the value of a row that
// is named twice is undefined. So each is the other's backward pass where no number repeats. Rows of y that
// no index names are left as they are. Sums are fp32, rounded once. There may be no rows at all; y and x
// share no memory; each may be columns of wider rows. An index past the table throws Error before anything is
// written; on a GPU the kernel traps, and the Error names no index.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct GatherRows {
  Tensor y;                            // (N, W), f32, bf16 or f16
  Tensor x;                            // (rows, W), of y's dtype
  Tensor index;                        // (N) i32, below the rows of x
  int64_t y_stride = 0, x_stride = 0;  // between rows, in elements; 0: W
};

struct ScatterRows {
  Tensor y;      // (rows, W), f32, bf16 or f16
  Tensor x;      // (N, W), of y's dtype
  Tensor index;  // (N) i32, below the rows of y
  bool add = false;
  int64_t y_stride = 0, x_stride = 0;  // between rows, in elements; 0: W
};

void gather_rows(Stream& stream, const GatherRows& a);
void scatter_rows(Stream& stream, const ScatterRows& a);

double min_bytes(const GatherRows& a);   // assumes that no number is negative or repeats
double min_bytes(const ScatterRows& a);  // assumes that no number is negative
double flops(const GatherRows& a);
double flops(const ScatterRows& a);

namespace cuda {
void gather_rows(Stream& stream, const GatherRows& a);    // with both strides set
void scatter_rows(Stream& stream, const ScatterRows& a);  // the same
}  // namespace cuda

}  // namespace flatshard
