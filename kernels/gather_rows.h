#pragma once
// Rows by their number, in N rows of width W:
//   gather_rows:  y[i] = x[index[i]], or zero where index[i] is negative
//   scatter_rows: y[index[i]] = x[i], or with `add` y[index[i]] += x[i]; skips a negative index
// Numbers may repeat in a gather. In a scatter they must be unique, which is not checked: the value of a row
// that is named twice is undefined. So each op is the backward pass of the other if no number repeats. Rows
// of y that no index names keep their values. Sums are fp32, rounded once. There may be no rows at all; y and
// x share no memory; each may be columns of wider rows. An index past the table throws an Error before
// anything is written; on a GPU the kernel traps, and the Error names no index.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct GatherRows {
  Tensor y;                            // (N, W), f32, bf16 or f16
  Tensor x;                            // (rows, W), of y's dtype
  Tensor index;                        // (N) i32, below the rows of x
  int64_t y_stride = 0, x_stride = 0;  // elements between rows; 0: W
};

struct ScatterRows {
  Tensor y;      // (rows, W), f32, bf16 or f16
  Tensor x;      // (N, W), of y's dtype
  Tensor index;  // (N) i32, below the rows of y
  bool add = false;
  int64_t y_stride = 0, x_stride = 0;  // elements between rows; 0: W
};

void gather_rows(Stream& stream, const GatherRows& a);
void scatter_rows(Stream& stream, const ScatterRows& a);

double min_bytes(const GatherRows& a);   // assumes that no number is negative or repeats
double min_bytes(const ScatterRows& a);  // assumes that no number is negative
double flops(const GatherRows& a);
double flops(const ScatterRows& a);

namespace cuda {
void gather_rows(Stream& stream, const GatherRows& a);    // both strides must be set
void scatter_rows(Stream& stream, const ScatterRows& a);  // both strides must be set
}  // namespace cuda

}  // namespace flatshard
