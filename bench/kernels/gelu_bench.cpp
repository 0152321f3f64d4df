// Cases of the kinds of GELU, shared by tests and benchmark.

#include <cmath>
#include <numbers>

#include "bench/case.h"
#include "kernels/gelu.h"

namespace flatshard::bench {
namespace {

// Inputs cover both tails.
double wide(int64_t, double unit) { return 12 * unit - 6; }

double formula(GeluKind kind, double x) {
  if (kind == GeluKind::erf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  if (kind == GeluKind::quick) return x / (1 + std::exp(-1.702 * x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

std::function<void(Values&)> reference_of(GeluKind kind) {
  return [kind](Values& v) {
    v["y"].clear();
    for (const double x : v["x"]) v["y"].push_back(formula(kind, x));
  };
}

Case forward_case(GeluKind kind, DType dtype, int64_t n) {
  const auto arguments = [=](const Tensors& t) -> GeluForward {
    return {.y = t["y"], .x = t["x"], .kind = kind};
  };
  return {.op = "gelu_forward",
          .shape = str(n, ' ', kind),
          .dtype = dtype,
          .args = {{"x", dtype, {n}, Role::input, wide}, {"y", dtype, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { gelu_forward(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference = reference_of(kind)};
}

Case backward_case(GeluKind kind, DType dtype, int64_t n) {
  const auto arguments = [=](const Tensors& t) -> GeluBackward {
    return {.dx = t["dx"], .dy = t["dy"], .x = t["x"], .kind = kind};
  };
  return {.op = "gelu_backward",
          .shape = str(n, ' ', kind),
          .dtype = dtype,
          .args = {{"x", dtype, {n}, Role::input, wide},
                   {"dy", dtype, {n}, Role::input},
                   {"dx", dtype, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { gelu_backward(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference = reference_of(kind),
          .gradients = true};
}

}  // namespace

std::vector<Case> gelu_cases(Scale scale) {
  std::vector<Case> cases;
  for (const GeluKind kind : {GeluKind::tanh, GeluKind::erf, GeluKind::quick}) {
    const auto append = [&](const std::vector<int64_t>& sizes) {
      for (const Case& c : both_directions(
               scale, sizes, [&](DType dtype, int64_t n) { return forward_case(kind, dtype, n); },
               [&](DType dtype, int64_t n) { return backward_case(kind, dtype, n); }))
        cases.push_back(c);
    };
    if (scale == Scale::bench) append({8192 * 4096});
    if (scale == Scale::vm) append({1 << 17});
    if (scale == Scale::golden) append({100});
    if (scale == Scale::test) append({0, 1, 16, 117});
  }
  return cases;
}

}  // namespace flatshard::bench
