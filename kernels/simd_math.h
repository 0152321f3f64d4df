#pragma once
// Functions of vectors of sixteen floats. They propagate NaN and return their limits at the infinities.
// Accuracies are in units in the last place of the exact value; tests/kernels/simd_test.cpp checks them. The
// polynomials are minimax fits of the relative error.

#include "kernels/simd.h"

namespace flatshard::simd {

// e^x within 1.2 units (0.9 with fused multiply-add); 0 below -87.33654 (no subnormal results), infinity
// above 88.7228.
inline Floats exp(Floats x) {
  const Floats clamped = min(splat(89.0f), max(splat(-87.3365402f), x));
  // x = n ln 2 + r, |r| <= ln 2 / 2; adding and subtracting 1.5 * 2^23 rounds to an integer.
  const Floats magic = splat(12582912.0f);
  const Floats n = fma(clamped, splat(1.44269504f), magic) - magic;
  const Floats r = fma(n, splat(-1.42860677e-6f), fma(n, splat(-0.693145752f), clamped));
  // e^r = 1 + r (1 + r q(r))
  Floats q = splat(0.0013814539415761828f);
  q = fma(q, r, splat(0.00836874544620514f));
  q = fma(q, r, splat(0.04166838899254799f));
  q = fma(q, r, splat(0.1666652113199234f));
  q = fma(q, r, splat(0.4999999403953552f));
  const Floats e = fma(fma(q, r, splat(1.0f)), r, splat(1.0f));
  return x < -87.3365402f ? splat(0.0f) : scale_by_power_of_two(e, n);
}

// 1 / (1 + e^-x) within 3 units; 0 below -88.7228.
inline Floats sigmoid(Floats x) { return 1.0f / (exp(-x) + 1.0f); }

}  // namespace flatshard::simd
