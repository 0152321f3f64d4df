#pragma once
// Gated linear units: SwiGLU, with P(x) = 1 / (1 + e^-x), and GEGLU, with the P of gelu.h:
//   y = gate P(gate) up
//   dgate = dy up (P(gate) + gate P'(gate))      dup = dy gate P(gate)
// The backward pass recomputes P. gate and up are two tensors (..., F), or the two halves of the (T, 2F)
// output of a fused projection: then they are packed_columns() of it and row_stride is 2F (kernels/packed.h).
// dgate may be gate, and dup may be up.

#include "kernels/packed.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

enum class Gate { silu, gelu };

struct SwigluForward {
  Tensor y;                // (..., F)
  Tensor gate;             // (..., F)
  Tensor up;               // (..., F)
  int64_t row_stride = 0;  // elements between rows of gate and of up; 0: F
  int64_t y_stride = 0;    // elements between rows of y; 0: F
  Gate function = Gate::silu;
};

struct SwigluBackward {
  Tensor dgate;            // (..., F)
  Tensor dup;              // (..., F)
  Tensor dy;               // (..., F)
  Tensor gate;             // (..., F)
  Tensor up;               // (..., F)
  int64_t row_stride = 0;  // elements between rows of gate, up, dgate and dup; 0: F
  Gate function = Gate::silu;
};

void swiglu_forward(Stream& stream, const SwigluForward& a);
void swiglu_backward(Stream& stream, const SwigluBackward& a);

double min_bytes(const SwigluForward& a);
double min_bytes(const SwigluBackward& a);
double flops(const SwigluForward& a);
double flops(const SwigluBackward& a);

namespace cuda {
void swiglu_forward(Stream& stream, const SwigluForward& a, int64_t row_stride, int64_t y_stride);
void swiglu_backward(Stream& stream, const SwigluBackward& a, int64_t row_stride);
}  // namespace cuda

}  // namespace flatshard
