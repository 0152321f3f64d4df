#pragma once
// Elementwise operations:
//   cast:  y = x in y's dtype, rounded to nearest even      add:  y = a + factor b      scale:  y = factor x
//   softcap:  y = cap tanh(x / cap), which bounds y to (-cap, cap)
//   place:  columns [first, first + C) of y = x, all other columns of y = 0
// Sums and products are fp32 and rounded once. y may be an input of the same dtype. A cast may read or write
// columns of wider rows, and place may write them.

#include "kernels/packed.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct Cast {
  Tensor y;                            // any shape, f32, bf16 or f16
  Tensor x;                            // same size as y, f32, bf16 or f16
  int64_t y_stride = 0, x_stride = 0;  // elements between rows; 0: rows are contiguous
};

struct Add {
  Tensor y;  // any shape
  Tensor a;  // like y
  Tensor b;  // like y
  float factor = 1;
};

struct Scale {
  Tensor y;  // any shape
  Tensor x;  // like y
  float factor;
};

struct Softcap {
  Tensor y;   // any shape
  Tensor x;   // like y
  float cap;  // positive
};

struct Place {
  Tensor y;              // (rows, width)
  Tensor x;              // (rows, C), of y's dtype; C may be 0
  int64_t first = 0;     // first + C <= width
  int64_t y_stride = 0;  // elements between rows; 0: width
};

void cast(Stream& stream, const Cast& a);
void add(Stream& stream, const Add& a);
void scale(Stream& stream, const Scale& a);
void softcap(Stream& stream, const Softcap& a);
void place(Stream& stream, const Place& a);

double min_bytes(const Cast& a);
double min_bytes(const Add& a);
double min_bytes(const Scale& a);
double min_bytes(const Softcap& a);
double min_bytes(const Place& a);
double flops(const Cast& a);
double flops(const Add& a);
double flops(const Scale& a);
double flops(const Softcap& a);
double flops(const Place& a);

namespace cuda {
void cast(Stream& stream, const Cast& a, int64_t y_stride, int64_t x_stride);
void add(Stream& stream, const Add& a);
void scale(Stream& stream, const Scale& a);
void softcap(Stream& stream, const Softcap& a);
void place(Stream& stream, const Place& a, int64_t y_stride);
}  // namespace cuda

}  // namespace flatshard
