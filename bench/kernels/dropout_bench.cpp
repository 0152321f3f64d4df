// Cases of dropout, shared by tests and benchmark.

#include "bench/case.h"
#include "kernels/dropout.h"

namespace flatshard::bench {
namespace {

constexpr RandomStream kRandom(17, "layers.3.dropout", 9);
constexpr int64_t kFirst = 45;

DropoutForward forward_args(const Tensors& t, float p) {
  return {.y = t["y"], .x = t["x"], .p = p, .random = kRandom, .first = kFirst};
}

DropoutBackward backward_args(const Tensors& t, float p, bool accumulate_dx) {
  return {.dx = t["dx"],
          .dy = t["dy"],
          .p = p,
          .random = kRandom,
          .first = kFirst,
          .accumulate_dx = accumulate_dx};
}

void formula(Values& v, int64_t n, float p) {
  v["y"].assign(static_cast<size_t>(n), 0);
  for (int64_t i = 0; i < n; ++i)
    if (kRandom.bits(kFirst + i) / 256 * 0x1p-24 >= p) v["y"][i] = v["x"][i] / (1.0 - p);
}

Case forward_case(DType dtype, int64_t n, float p) {
  return {.op = "dropout_forward",
          .shape = str(n, " p=", p),
          .dtype = dtype,
          .args = {{"x", dtype, {n}, Role::input}, {"y", dtype, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { dropout_forward(s, forward_args(t, p)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(forward_args(t, p)); },
          .flops = [=](const Tensors& t) { return flops(forward_args(t, p)); },
          .reference = [=](Values& v) { formula(v, n, p); }};
}

Case backward_case(DType dtype, int64_t n, float p, bool accumulate_dx) {
  return {.op = "dropout_backward",
          .shape = str(n, " p=", p, accumulate_dx ? " dx+=" : ""),
          .dtype = dtype,
          .args = {{"x", dtype, {n}, Role::input},
                   {"dy", dtype, {n}, Role::input},
                   {"dx", dtype, {n}, accumulate_dx ? Role::updated : Role::output}},
          .run = [=](Stream& s, Arena&,
                     const Tensors& t) { dropout_backward(s, backward_args(t, p, accumulate_dx)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(backward_args(t, p, accumulate_dx)); },
          .flops = [=](const Tensors& t) { return flops(backward_args(t, p, accumulate_dx)); },
          .reference = [=](Values& v) { formula(v, n, p); },
          .gradients = true};
}

}  // namespace

std::vector<Case> dropout_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::bench || scale == Scale::vm)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const int64_t n = scale == Scale::bench ? 1 << 25 : 1 << 17;
      cases.push_back(forward_case(dtype, n, 0.1f));
      cases.push_back(backward_case(dtype, n, 0.1f, false));
    }
  if (scale == Scale::test)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t n : {1, 7, 16, 203}) {
        cases.push_back(forward_case(dtype, n, n == 7 ? 0.0f : 0.3f));
        cases.push_back(backward_case(dtype, n, n == 7 ? 0.0f : 0.3f, n % 2 == 0));
      }
  return cases;
}

}  // namespace flatshard::bench
