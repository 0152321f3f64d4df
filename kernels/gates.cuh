#pragma once
// The terms of gated linear units (swiglu.h) on the GPU, for the ops and for the ends of products.

#include "kernels/gelu_math.cuh"
#include "kernels/swiglu.h"

namespace flatshard::cuda {

struct Silu {
  static __device__ float probability(float x) { return sigmoid(x); }
  static __device__ float slope(float x, float p) { return p * fmaf(x, 1.0f - p, 1.0f); }
};

// Calls use.operator()<Of>() with the terms of a gate.
template <class Use>
void visit_gate(Gate function, Use&& use) {
  function == Gate::silu ? use.template operator()<Silu>() : use.template operator()<TanhGelu>();
}

template <class Of>
__device__ float gated(float gate, float up) {
  return gate * Of::probability(gate) * up;
}

struct GatedGradient {
  float gate, up;
};
template <class Of>
__device__ GatedGradient gated_gradient(float dy, float gate, float up) {
  const float p = Of::probability(gate);
  return {dy * up * Of::slope(gate, p), dy * gate * p};
}

}  // namespace flatshard::cuda
