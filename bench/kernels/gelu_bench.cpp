// Cases of GELU, shared by tests and benchmark.

#include <cmath>
#include <numbers>

#include "bench/case.h"
#include "kernels/gelu.h"

namespace flatshard::bench {
namespace {

// Inputs cover both tails.
double wide(int64_t, double unit) { return 12 * unit - 6; }

double formula(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

void reference(Values& v) {
  v["y"].clear();
  for (const double x : v["x"]) v["y"].push_back(formula(x));
}

Case forward_case(DType dtype, int64_t n) {
  const auto arguments = [](const Tensors& t) -> GeluForward { return {.y = t["y"], .x = t["x"]}; };
  return {.op = "gelu_forward",
          .shape = str(n),
          .dtype = dtype,
          .args = {{"x", dtype, {n}, Role::input, wide}, {"y", dtype, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { gelu_forward(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference = reference};
}

Case backward_case(DType dtype, int64_t n) {
  const auto arguments = [](const Tensors& t) -> GeluBackward {
    return {.dx = t["dx"], .dy = t["dy"], .x = t["x"]};
  };
  return {.op = "gelu_backward",
          .shape = str(n),
          .dtype = dtype,
          .args = {{"x", dtype, {n}, Role::input, wide},
                   {"dy", dtype, {n}, Role::input},
                   {"dx", dtype, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { gelu_backward(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference = reference,
          .gradients = true};
}

}  // namespace

std::vector<Case> gelu_cases(Scale scale) {
  std::vector<Case> cases;
  const auto append = [&](DType dtype, int64_t n) {
    cases.push_back(forward_case(dtype, n));
    cases.push_back(backward_case(dtype, n));
  };
  if (scale == Scale::bench || scale == Scale::vm) {
    for (const DType dtype : {DType::f32, DType::bf16})
      append(dtype, scale == Scale::bench ? 8192 * 4096 : 1 << 17);
    return cases;
  }
  if (scale == Scale::golden) {
    for (const DType dtype : {DType::f32, DType::bf16}) append(dtype, 100);
    return cases;
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t n : {1, 16, 117}) append(dtype, n);
  return cases;
}

}  // namespace flatshard::bench
