#pragma once
// The terms of GELU (gelu.h) on the GPU: P(x), and the slope P(x) + x P'(x).

#include "kernels/cuda_util.cuh"
#include "kernels/gelu_terms.h"

namespace flatshard::cuda {

struct TanhGelu {
  static __device__ float probability(float x) {
    return sigmoid(kTwoSqrtTwoOverPi * x * fmaf(kGeluCubic * x, x, 1.0f));
  }
  static __device__ float slope(float x, float probability) {
    const float inner = kTwoSqrtTwoOverPi * fmaf(3.0f * kGeluCubic * x, x, 1.0f);
    return fmaf(x * probability * (1.0f - probability), inner, probability);
  }
};

struct ErfGelu {
  static __device__ float bell(float x) { return __expf(-0.5f * x * x); }
  static __device__ float probability(float x) {
    constexpr float kTail[9] = {kErfTail[0], kErfTail[1], kErfTail[2], kErfTail[3], kErfTail[4],
                                kErfTail[5], kErfTail[6], kErfTail[7], kErfTail[8]};
    const float s = __fdividef(1.0f, fmaf(kErfScale, fabsf(x), 1.0f));
    float r = kTail[8];
#pragma unroll
    for (int i = 7; i >= 0; --i) r = fmaf(r, s, kTail[i]);
    const float tail = bell(x) * (r * s);
    return x < 0.0f ? tail : 1.0f - tail;
  }
  static __device__ float slope(float x, float probability) {
    return fmaf(kInvSqrtTwoPi * x, bell(x), probability);
  }
};

struct QuickGelu {
  static __device__ float probability(float x) { return sigmoid(kQuickGelu * x); }
  static __device__ float slope(float x, float probability) {
    return fmaf(kQuickGelu * x * probability, 1.0f - probability, probability);
  }
};

}  // namespace flatshard::cuda
