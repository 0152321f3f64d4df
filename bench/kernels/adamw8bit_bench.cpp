// Cases of AdamW with 8-bit moments, shared by tests and benchmark.

#include <algorithm>
#include <cmath>

#include "bench/case.h"
#include "kernels/adamw8bit.h"
#include "kernels/dynamic_table.h"

namespace flatshard::bench {
namespace {

constexpr double kRate = 0.05, kWeightDecay = 0.1;

struct Options {
  bool copy = true;
  bool skip = false;
};

int64_t decay_end(int64_t n) { return 2 * n / 3; }
int64_t blocks(int64_t n) { return (n + kMomentBlock - 1) / kMomentBlock; }

AdamW8bit adamw8bit_args(const Tensors& t, int64_t n) {
  return {.step = {.p = t["p"],
                   .m = t["m"],
                   .v = t["v"],
                   .copy = t.has("copy") ? t["copy"] : Tensor{},
                   .g = t["g"],
                   .grad_scale = t["grad_scale"],
                   .skip = t["skip"],
                   .lr = kRate,
                   .weight_decay = kWeightDecay,
                   .decay_end = decay_end(n),
                   .step = 3},
          .m_absmax = t["m_absmax"],
          .v_absmax = t["v_absmax"]};
}

// The code whose value is nearest to y.
double code_of(const DynamicTable& table, double y) {
  const auto below = [&](size_t code) { return y > (double{table[code]} + double{table[code + 1]}) / 2; };
  size_t code = 0;
  while (code < 255 && below(code)) ++code;
  return static_cast<double>(code);
}

void formula(Values& values, int64_t n) {
  if (values["skip"][0] != 0) return;
  const double eps = 1e-8;
  const DynamicTable &of_m = dynamic_table(true), &of_v = dynamic_table(false);
  for (int64_t block = 0; block < blocks(n); ++block) {
    double &m_absmax = values["m_absmax"][block], &v_absmax = values["v_absmax"][block];
    const int64_t begin = block * kMomentBlock, end = std::min(begin + kMomentBlock, n);
    std::vector<double> m, v;
    double largest_m = 0, largest_v = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double g = values["g"][i] * values["grad_scale"][0];
      m.push_back(0.9 * of_m[static_cast<size_t>(values["m"][i])] * m_absmax + 0.1 * g);
      v.push_back(0.999 * of_v[static_cast<size_t>(values["v"][i])] * v_absmax + 0.001 * g * g);
      largest_m = std::max(largest_m, std::abs(m.back()));
      largest_v = std::max(largest_v, v.back());
      double& p = values["p"][i];
      if (i < decay_end(n)) p *= 1 - kRate * kWeightDecay;
      const double unbiased_v = v.back() / (1 - 0.999 * 0.999 * 0.999);
      p -= kRate * (m.back() / (1 - 0.9 * 0.9 * 0.9)) / (std::sqrt(unbiased_v) + eps);
    }
    m_absmax = largest_m;
    v_absmax = largest_v;
    for (int64_t i = begin; i < end; ++i) {
      const double y = m[i - begin] / m_absmax, code = code_of(of_m, y);
      values["m"][i] = y < 0 && code == kSignedZero ? code - 1 : code;
      values["v"][i] = code_of(of_v, v[i - begin] / v_absmax);
    }
  }
  if (values.contains("copy")) values["copy"] = values["p"];
}

Case adamw8bit_case(DType dtype, int64_t n, Options options = {}) {
  const Fill any_code = [](int64_t, double unit) { return std::floor(unit * 256); };
  const Fill positive = [](int64_t, double unit) { return 0.5 + unit; };
  Case c{.op = "adamw8bit",
         .shape = str(n, options.copy ? "" : " no copy", options.skip ? " skip" : ""),
         .dtype = dtype,
         .args = {{"p", DType::f32, {n}, Role::updated},
                  {"m", DType::u8, {n}, Role::updated, any_code},
                  {"v", DType::u8, {n}, Role::updated, any_code},
                  {"m_absmax", DType::f32, {blocks(n)}, Role::updated, positive},
                  {"v_absmax", DType::f32, {blocks(n)}, Role::updated, positive},
                  {"g", dtype, {n}, Role::input},
                  {"grad_scale", DType::f32, {1}, Role::constant, [](int64_t, double) { return 0.375; }},
                  {"skip", DType::i32, {1}, Role::constant, [=](int64_t, double) { return options.skip; }}},
         .run = [=](Stream& s, Arena&, const Tensors& t) { adamw8bit(s, adamw8bit_args(t, n)); },
         .min_bytes = [=](const Tensors& t) { return min_bytes(adamw8bit_args(t, n)); },
         .flops = [=](const Tensors& t) { return flops(adamw8bit_args(t, n)); },
         .reference = [=](Values& v) { formula(v, n); }};
  if (options.copy) c.args.push_back({"copy", dtype, {n}, Role::updated});
  return c;
}

}  // namespace

std::vector<Case> adamw8bit_cases(Scale scale) {
  if (scale == Scale::bench)
    return {adamw8bit_case(DType::f32, 1 << 24), adamw8bit_case(DType::bf16, 1 << 24)};
  if (scale == Scale::vm) return {adamw8bit_case(DType::f32, 1 << 16), adamw8bit_case(DType::bf16, 1 << 16)};
  if (scale == Scale::golden) return {adamw8bit_case(DType::f32, 300), adamw8bit_case(DType::bf16, 300)};
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t n : {1, 7, 40, 256, 700}) cases.push_back(adamw8bit_case(dtype, n));
  cases.push_back(adamw8bit_case(DType::bf16, 8451));
  cases.push_back(adamw8bit_case(DType::bf16, 300, {.copy = false}));
  cases.push_back(adamw8bit_case(DType::bf16, 300, {.skip = true}));
  return cases;
}

}  // namespace flatshard::bench
