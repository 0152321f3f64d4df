#pragma once
// GELU, where P is the normal distribution or an approximation of it:
//   y = x P(x)      dx = dy (P(x) + x P'(x))
//   tanh:  P(x) = (1 + tanh u) / 2 = 1 / (1 + e^-2u)      u = sqrt(2 / pi) (x + 0.044715 x^3)
//   erf:   P(x) = (1 + erf(x / sqrt(2))) / 2
//   quick: P(x) = 1 / (1 + e^(-1.702 x))
// The backward pass needs only x. y may be x, and dx may be dy or x.

#include "runtime/named.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

enum class GeluKind { tanh, erf, quick };
constexpr auto value_names(GeluKind) { return std::array{"tanh", "erf", "quick"}; }

// Calls f.operator()<Of>() with the type of a kind; the types are in the order of GeluKind.
template <class Tanh, class Erf, class Quick, class F>
void visit_gelu(GeluKind kind, F&& f) {
  if (kind == GeluKind::tanh) f.template operator()<Tanh>();
  if (kind == GeluKind::erf) f.template operator()<Erf>();
  if (kind == GeluKind::quick) f.template operator()<Quick>();
}

struct GeluForward {
  Tensor y;  // any shape
  Tensor x;  // like y
  GeluKind kind = GeluKind::tanh;
};

struct GeluBackward {
  Tensor dx;  // any shape
  Tensor dy;  // like dx
  Tensor x;   // like dx
  GeluKind kind = GeluKind::tanh;
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
