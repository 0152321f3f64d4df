#pragma once
// The terms of GELU (gelu.h) on the GPU: P(x), and the slope P(x) + x P'(x).

#include "kernels/cuda_util.cuh"
#include "kernels/gelu_terms.h"

namespace flatshard::cuda {

__device__ inline float gelu_probability(float x) {
  return sigmoid(kTwoSqrtTwoOverPi * x * fmaf(kGeluCubic * x, x, 1.0f));
}
__device__ inline float gelu_slope(float x, float probability) {
  const float inner = kTwoSqrtTwoOverPi * fmaf(3.0f * kGeluCubic * x, x, 1.0f);
  return fmaf(x * probability * (1.0f - probability), inner, probability);
}

}  // namespace flatshard::cuda
