// Cases of Lion, shared by tests and benchmark.

#include "bench/case.h"
#include "kernels/lion.h"

namespace flatshard::bench {
namespace {

struct Options {
  bool copy = true;
  bool skip = false;
};

Lion lion_args(const Tensors& t, int64_t n) {
  return {.p = t["p"],
          .m = t["m"],
          .copy = t.has("copy") ? t["copy"] : Tensor{},
          .g = t["g"],
          .grad_scale = t["grad_scale"],
          .skip = t["skip"],
          .lr = 0.05,
          .weight_decay = 0.1,
          .decay_end = 2 * n / 3};
}

void formula(Values& v, int64_t n) {
  if (v["skip"][0] != 0) return;
  const double lr = 0.05, weight_decay = 0.1;
  for (int64_t i = 0; i < n; ++i) {
    const double g = v["g"][i] * v["grad_scale"][0];
    double &p = v["p"][i], &m = v["m"][i];
    const double direction = 0.9 * m + 0.1 * g;
    if (i < 2 * n / 3) p *= 1 - lr * weight_decay;
    p -= lr * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
    m = 0.99 * m + 0.01 * g;
  }
  if (v.contains("copy")) v["copy"] = v["p"];
}

Case lion_case(DType dtype, int64_t n, Options options = {}) {
  Case c{.op = "lion",
         .shape = str(n, options.copy ? "" : " no copy", options.skip ? " skip" : ""),
         .dtype = dtype,
         .args = {{"p", DType::f32, {n}, Role::updated},
                  {"m", DType::f32, {n}, Role::updated},
                  {"g", dtype, {n}, Role::input},
                  {"grad_scale", DType::f32, {1}, Role::constant, [](int64_t, double) { return 0.375; }},
                  {"skip", DType::i32, {1}, Role::constant, [=](int64_t, double) { return options.skip; }}},
         .run = [=](Stream& s, Arena&, const Tensors& t) { lion(s, lion_args(t, n)); },
         .min_bytes = [=](const Tensors& t) { return min_bytes(lion_args(t, n)); },
         .flops = [=](const Tensors& t) { return flops(lion_args(t, n)); },
         .reference = [=](Values& v) { formula(v, n); }};
  if (options.copy) c.args.push_back({"copy", dtype, {n}, Role::updated});
  return c;
}

}  // namespace

std::vector<Case> lion_cases(Scale scale) {
  if (scale == Scale::bench) return {lion_case(DType::f32, 1 << 24), lion_case(DType::bf16, 1 << 24)};
  if (scale == Scale::vm) return {lion_case(DType::f32, 1 << 16), lion_case(DType::bf16, 1 << 16)};
  if (scale == Scale::golden) return {lion_case(DType::f32, 48), lion_case(DType::bf16, 48)};
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t n : {1, 7, 16, 40, 203}) cases.push_back(lion_case(dtype, n));
  cases.push_back(lion_case(DType::bf16, 8451));
  cases.push_back(lion_case(DType::bf16, 37, {.copy = false}));
  cases.push_back(lion_case(DType::bf16, 37, {.skip = true}));
  return cases;
}

}  // namespace flatshard::bench
