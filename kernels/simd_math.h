#pragma once
// Functions of sixteen floats at a time. All keep NaN, and at the infinities they are their limits.
// tests/kernels/simd_test.cpp holds each to the accuracy stated here, in units in the last place of the true
// value. The polynomials are fits with the least largest relative error.

#include "kernels/simd.h"

namespace flatshard::simd {

// e^x within 1.2 units (0.9 with fused multiply-add); 0 below -87.33654 (no subnormal results), infinity
// above 88.7228.
inline Floats exp(Floats x) {
  const Floats clamped = min(splat(89.0f), max(splat(-87.3365402f), x));
  // x = n ln 2 + r, |r| <= ln 2 / 2; adding and taking away 1.5 * 2^23 rounds to a whole number.
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

// tanh(x) within 2 units.
inline Floats tanh(Floats x) {
  const Floats a = abs(x), s = x * x;
  Floats p = splat(-0.005704987328499556f);
  p = fma(p, s, splat(0.0206390880048275f));
  p = fma(p, s, splat(-0.05373971536755562f));
  p = fma(p, s, splat(0.13331441581249237f));
  p = fma(p, s, splat(-0.3333328068256378f));
  const Floats near = fma(p * s, x, x);
  const Floats far = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  return copy_sign(a < 0.625f ? near : far, x);
}

// erf(x) within 2 units: x + x p(x^2) near zero, 1 - e^-q(x) elsewhere.
inline Floats erf(Floats x) {
  const Floats a = min(splat(4.0f), abs(x)), s = x * x;  // erf(4) is 1
  Floats p = splat(8.513135253451765e-05f);
  p = fma(p, s, splat(-0.000817564781755209f));
  p = fma(p, s, splat(0.005203859880566597f));
  p = fma(p, s, splat(-0.02686050906777382f));
  p = fma(p, s, splat(0.11283715069293976f));
  p = fma(p, s, splat(-0.37612634897232056f));
  p = fma(p, s, splat(0.12837916612625122f));
  Floats q = splat(2.0828530978178605e-05f);
  q = fma(q, a, splat(-0.0004313926037866622f));
  q = fma(q, a, splat(0.004156250506639481f));
  q = fma(q, a, splat(-0.025080606341362f));
  q = fma(q, a, splat(0.10822036862373352f));
  q = fma(q, a, splat(0.6334008574485779f));
  q = fma(q, a, splat(1.1294883489608765f));
  q = fma(q, a, splat(-0.00016920396592468023f));
  return copy_sign(a < 0.9f ? fma(p, x, x) : 1.0f - exp(-q), x);
}

}  // namespace flatshard::simd
