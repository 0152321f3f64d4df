#pragma once
// GELU as GPT-2 has it, with tanh:
//   y = x P(x)      P(x) = (1 + tanh u) / 2 = 1 / (1 + e^-2u)      u = sqrt(2 / pi) (x + 0.044715 x^3)
//   dx = dy (P(x) + x P'(x))
// The backward pass needs only x. y may be x, and dx may be dy or x.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct GeluForward {
  Tensor y;  // any shape
  Tensor x;  // like y
};

struct GeluBackward {
  Tensor dx;  // any shape
  Tensor dy;  // like dx
  Tensor x;   // like dx
};

void gelu_forward(Stream& stream, const GeluForward& a);
void gelu_backward(Stream& stream, const GeluBackward& a);

double min_bytes(const GeluForward& a);
double min_bytes(const GeluBackward& a);
double flops(const GeluForward& a);
double flops(const GeluBackward& a);

namespace cuda {
void gelu_forward(Stream& stream, const GeluForward& a);
void gelu_backward(Stream& stream, const GeluBackward& a);
}  // namespace cuda

}  // namespace flatshard
