#pragma once
// The function of a gate, for the formulas of cases.

#include <cmath>
#include <numbers>

#include "kernels/swiglu.h"

namespace flatshard::bench {

inline double gated(Gate function, double x) {
  if (function == Gate::silu) return x / (1 + std::exp(-x));
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

// Its derivative.
inline double gate_slope(Gate function, double x) {
  constexpr double kStep = 1e-5;
  return (gated(function, x + kStep) - gated(function, x - kStep)) / (2 * kStep);
}

}  // namespace flatshard::bench
