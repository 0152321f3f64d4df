// GELU on the GPU. Memory bandwidth limits it (flat.cuh): with tanh, an element takes 21 instructions of a
// budget of 25 with 30 registers, and in the backward pass 30 of 38 with 43. GELU with erf takes 32
// instructions forward, a quarter above the budget, and 36 backward.

#include "kernels/flat.cuh"
#include "kernels/gelu.h"
#include "kernels/gelu_math.cuh"

namespace flatshard::cuda {
namespace {

template <class Of>
struct Gelu {
  __device__ float operator()(float x) const { return x * Of::probability(x); }
};
template <class Of>
struct Gradient {
  __device__ float operator()(float x, float dy) const { return dy * Of::slope(x, Of::probability(x)); }
};

}  // namespace

void gelu_forward(Stream& stream, const GeluForward& a) {
  visit_gelu<TanhGelu, ErfGelu, QuickGelu>(
      a.kind, [&]<class Of>() { launch_map(stream, "gelu_forward", Gelu<Of>{}, a.y, a.x); });
}

void gelu_backward(Stream& stream, const GeluBackward& a) {
  visit_gelu<TanhGelu, ErfGelu, QuickGelu>(
      a.kind, [&]<class Of>() { launch_map(stream, "gelu_backward", Gradient<Of>{}, a.dx, a.x, a.dy); });
}

}  // namespace flatshard::cuda
