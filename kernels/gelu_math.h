#pragma once
// The terms of GELU (gelu.h) for vectors of floats: P(x), and the slope P(x) + x P'(x).

#include "kernels/gelu_terms.h"
#include "kernels/simd_math.h"

namespace flatshard::simd {

struct TanhGelu {
  static Floats probability(Floats x) {
    return sigmoid(kTwoSqrtTwoOverPi * x * fma(kGeluCubic * x, x, splat(1.0f)));
  }
  static Floats slope(Floats x, Floats probability) {
    const Floats inner = kTwoSqrtTwoOverPi * fma(3.0f * kGeluCubic * x, x, splat(1.0f));
    return fma(x * probability * (1.0f - probability), inner, probability);
  }
};

struct ErfGelu {
  static Floats bell(Floats x) { return exp(-0.5f * x * x); }
  static Floats probability(Floats x) {
    const Floats s = 1.0f / fma(splat(kErfScale), abs(x), splat(1.0f));
    Floats r = splat(kErfTail[8]);
    for (int i = 7; i >= 0; --i) r = fma(r, s, splat(kErfTail[i]));
    const Floats tail = bell(x) * (r * s);
    return x < 0.0f ? tail : 1.0f - tail;
  }
  static Floats slope(Floats x, Floats probability) { return fma(kInvSqrtTwoPi * x, bell(x), probability); }
};

struct QuickGelu {
  static Floats probability(Floats x) { return sigmoid(kQuickGelu * x); }
  static Floats slope(Floats x, Floats probability) {
    return fma(kQuickGelu * x * probability, 1.0f - probability, probability);
  }
};

}  // namespace flatshard::simd
