#pragma once
// The terms of GELU (gelu.h) for vectors of floats: P(x), and the slope P(x) + x P'(x).

#include "kernels/gelu_terms.h"
#include "kernels/simd_math.h"

namespace flatshard::simd {

inline Floats gelu_probability(Floats x) {
  return sigmoid(kTwoSqrtTwoOverPi * x * fma(kGeluCubic * x, x, splat(1.0f)));
}
inline Floats gelu_slope(Floats x, Floats probability) {
  const Floats inner = kTwoSqrtTwoOverPi * fma(3.0f * kGeluCubic * x, x, splat(1.0f));
  return fma(x * probability * (1.0f - probability), inner, probability);
}

}  // namespace flatshard::simd
