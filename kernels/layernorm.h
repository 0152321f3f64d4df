#pragma once
// LayerNorm over the last dimension, x of (rows, C):
//   mean = mean(x)      rstd = 1 / sqrt(mean((x - mean)^2) + eps)      xhat = (x - mean) rstd
//   y = xhat w + b
//   dx += or = rstd (dy w - mean(dy w) - xhat mean(dy w xhat))
//   dw += or = sum over rows of dy xhat      db += or = sum over rows of dy
// Statistics and sums are fp32; y is rounded once. The variance is computed in a second pass, over x - mean.
// dw and db are summed in an order independent of the number of threads (kernels/row_blocks.h).

#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct LayerNormForward {
  Tensor y;     // (..., C)
  Tensor mean;  // (rows) f32, saved for the backward pass
  Tensor rstd;  // (rows) f32, saved for the backward pass
  Tensor x;     // (..., C), of y's dtype
  Tensor w;     // (C), of y's dtype or f32
  Tensor b;     // (C), of w's dtype
  float eps;
  int64_t y_stride = 0;  // elements between rows; 0: C
};

struct LayerNormBackward {
  Tensor dx;                   // (..., C)
  Tensor dw;                   // (C) f32; empty: not computed
  Tensor db;                   // (C) f32; empty: not computed
  Tensor dy;                   // (..., C)
  Tensor x;                    // (..., C)
  Tensor w;                    // (C), of x's dtype or f32
  Tensor mean;                 // (rows) f32
  Tensor rstd;                 // (rows) f32
  bool accumulate_dx = false;  // dx += instead of dx =, for the residual stream
  bool accumulate = true;      // false: dw and db are written
};

void layernorm_forward(Stream& stream, const LayerNormForward& a);
void layernorm_backward(Stream& stream, Arena& scratch, const LayerNormBackward& a);

double min_bytes(const LayerNormForward& a);
double min_bytes(const LayerNormBackward& a);
double flops(const LayerNormForward& a);
double flops(const LayerNormBackward& a);

namespace cuda {
void layernorm_forward(Stream& stream, const LayerNormForward& a, int64_t y_stride);
void layernorm_backward(Stream& stream, const LayerNormBackward& a, const Tensor& partials);
}  // namespace cuda

}  // namespace flatshard
