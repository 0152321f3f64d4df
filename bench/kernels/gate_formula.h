#pragma once
// The function of a gate, for the formulas of cases.

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

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

// Rows of F gated units of gate and up, which lie side by side.
inline std::vector<double> gated_units(Gate function, const std::vector<double>& gate_up, int64_t F) {
  std::vector<double> y(gate_up.size() / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t row = i / F, column = i % F;
    y[i] = gated(function, gate_up[row * 2 * F + column]) * gate_up[row * 2 * F + F + column];
  }
  return y;
}

// Their gradients, side by side as well, from dy.
inline std::vector<double> gated_gradients(Gate function, const std::vector<double>& dy,
                                           const std::vector<double>& gate_up, int64_t F) {
  std::vector<double> d(gate_up.size());
  for (size_t i = 0; i < dy.size(); ++i) {
    const size_t gate = i / F * 2 * F + i % F, up = gate + F;
    d[gate] = dy[i] * gate_up[up] * gate_slope(function, gate_up[gate]);
    d[up] = dy[i] * gated(function, gate_up[gate]);
  }
  return d;
}

}  // namespace flatshard::bench
