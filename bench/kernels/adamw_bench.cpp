// Cases of AdamW, shared by tests and benchmark.

#include <cmath>

#include "bench/case.h"
#include "kernels/adamw.h"

namespace flatshard::bench {
namespace {

struct Options {
  bool copy = true;
  bool skip = false;
};

AdamW adamw_args(const Tensors& t, int64_t n) {
  return {.p = t["p"],
          .m = t["m"],
          .v = t["v"],
          .copy = t.has("copy") ? t["copy"] : Tensor{},
          .g = t["g"],
          .grad_scale = t["grad_scale"],
          .skip = t["skip"],
          .lr = 0.05,
          .weight_decay = 0.1,
          .decay_end = 2 * n / 3,
          .step = 3};
}

void formula(Values& v, int64_t n) {
  if (v["skip"][0] != 0) return;
  const double lr = 0.05, weight_decay = 0.1, eps = 1e-8;
  for (int64_t i = 0; i < n; ++i) {
    const double g = v["g"][i] * v["grad_scale"][0];
    double &p = v["p"][i], &m = v["m"][i], &square = v["v"][i];
    m = 0.9 * m + 0.1 * g;
    square = 0.999 * square + 0.001 * g * g;
    if (i < 2 * n / 3) p *= 1 - lr * weight_decay;
    p -= lr * (m / (1 - 0.9 * 0.9 * 0.9)) / (std::sqrt(square / (1 - 0.999 * 0.999 * 0.999)) + eps);
  }
  if (v.contains("copy")) v["copy"] = v["p"];
}

Case adamw_case(DType dtype, int64_t n, Options options = {}) {
  Case c{.op = "adamw",
         .shape = str(n, options.copy ? "" : " no copy", options.skip ? " skip" : ""),
         .dtype = dtype,
         .args = {{"p", DType::f32, {n}, Role::updated},
                  {"m", DType::f32, {n}, Role::updated},
                  {"v", DType::f32, {n}, Role::updated, [](int64_t, double unit) { return 0.01 + unit; }},
                  {"g", dtype, {n}, Role::input},
                  {"grad_scale", DType::f32, {1}, Role::constant, [](int64_t, double) { return 0.375; }},
                  {"skip", DType::i32, {1}, Role::constant, [=](int64_t, double) { return options.skip; }}},
         .run = [=](Stream& s, Arena&, const Tensors& t) { adamw(s, adamw_args(t, n)); },
         .min_bytes = [=](const Tensors& t) { return min_bytes(adamw_args(t, n)); },
         .flops = [=](const Tensors& t) { return flops(adamw_args(t, n)); },
         .reference = [=](Values& v) { formula(v, n); }};
  if (options.copy) c.args.push_back({"copy", dtype, {n}, Role::updated});
  return c;
}

}  // namespace

std::vector<Case> adamw_cases(Scale scale) {
  if (scale == Scale::bench) return {adamw_case(DType::f32, 1 << 24), adamw_case(DType::bf16, 1 << 24)};
  if (scale == Scale::vm) return {adamw_case(DType::f32, 1 << 16), adamw_case(DType::bf16, 1 << 16)};
  if (scale == Scale::golden) return {adamw_case(DType::f32, 48), adamw_case(DType::bf16, 48)};
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t n : {1, 7, 16, 40, 203}) cases.push_back(adamw_case(dtype, n));
  cases.push_back(adamw_case(DType::bf16, 37, {.copy = false}));
  cases.push_back(adamw_case(DType::bf16, 37, {.skip = true}));
  return cases;
}

}  // namespace flatshard::bench
