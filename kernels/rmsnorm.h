#pragma once
// RMSNorm over the last dimension, x of (rows, C):
//   rstd = 1 / sqrt(mean(x^2) + eps)      xhat = x rstd      y = xhat (w + offset)
//   dx += or = rstd (dy (w + offset) - xhat mean(dy (w + offset) xhat))
//   dw += or = sum over rows of dy xhat
// With an addend (the residual stream if a norm follows a layer), y = addend + xhat (w + offset), and the
// gradient of the addend is dy. Products and sums are fp32, and y is rounded once. With round_xhat, as in
// Llama, xhat is rounded to the dtype of x before the product with w. dw is summed in an order independent of
// the number of threads (kernels/row_blocks.h).

#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct RmsNormForward {
  Tensor y;         // (..., C)
  Tensor rstd;      // (rows) f32, saved for the backward pass
  Tensor x;         // (..., C), of y's dtype
  Tensor w;         // (C), of y's dtype or f32
  Tensor addend{};  // (..., C), of y's dtype, or empty
  float eps;
  float offset = 0;
  bool round_xhat = true;
  int64_t y_stride = 0;  // elements between rows; 0: C
};

struct RmsNormBackward {
  Tensor dx;         // (..., C)
  Tensor dw;         // (C) f32; empty: not computed
  Tensor dy;         // (..., C)
  Tensor x;          // (..., C)
  Tensor w;          // (C), of x's dtype or f32
  Tensor rstd;       // (rows) f32
  float offset = 0;  // same as in the forward pass, like round_xhat
  bool round_xhat = true;
  bool accumulate_dx = false;  // dx += instead of dx =, for the residual stream
  bool accumulate = true;      // false: dw is written
};

void rmsnorm_forward(Stream& stream, const RmsNormForward& a);
void rmsnorm_backward(Stream& stream, Arena& scratch, const RmsNormBackward& a);

double min_bytes(const RmsNormForward& a);
double min_bytes(const RmsNormBackward& a);
double flops(const RmsNormForward& a);
double flops(const RmsNormBackward& a);

namespace cuda {
void rmsnorm_forward(Stream& stream, const RmsNormForward& a, int64_t y_stride);
void rmsnorm_backward(Stream& stream, const RmsNormBackward& a, const Tensor& partial_dw);
}  // namespace cuda

}  // namespace flatshard
