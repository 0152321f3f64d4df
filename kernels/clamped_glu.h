#pragma once
// The gated unit of gpt_oss, whose gate and up are bounded by a limit L. Each row of x has pairs of a gate
// and an up, side by side. With g = min(gate, L), u = max(-L, min(up, L)) and s = 1 / (1 + e^(-1.702 g)):
//   y = g s (u + 1)
//   dgate = dy (u + 1) s (1 + 1.702 g (1 - s)), or 0 if gate > L      dup = dy g s, or 0 if |up| > L

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

inline constexpr float kClampedSlope = 1.702f;

struct ClampedGluForward {
  Tensor y;     // (R, F)
  Tensor x;     // (R, 2F)
  float limit;  // above 0
};

struct ClampedGluBackward {
  Tensor dx;  // (R, 2F)
  Tensor dy;  // (R, F)
  Tensor x;   // (R, 2F)
  float limit;
};

void clamped_glu_forward(Stream& stream, const ClampedGluForward& a);
void clamped_glu_backward(Stream& stream, const ClampedGluBackward& a);

double min_bytes(const ClampedGluForward& a);
double min_bytes(const ClampedGluBackward& a);
double flops(const ClampedGluForward& a);
double flops(const ClampedGluBackward& a);

namespace cuda {
void clamped_glu_forward(Stream& stream, const ClampedGluForward& a);
void clamped_glu_backward(Stream& stream, const ClampedGluBackward& a);
}  // namespace cuda

}  // namespace flatshard
