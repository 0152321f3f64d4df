// Cases of AdamW with 8-bit moments, shared by tests and benchmark.

#include <algorithm>
#include <cmath>

#include "bench/kernels/optimizer_case.h"
#include "kernels/adamw8bit.h"
#include "kernels/dynamic_table.h"

namespace flatshard::bench {
namespace {

int64_t blocks(int64_t n) { return (n + kMomentBlock - 1) / kMomentBlock; }

std::vector<Arg> state(int64_t n) {
  const Fill any_code = [](int64_t, double unit) { return std::floor(unit * 256); };
  const Fill positive = [](int64_t, double unit) { return 0.5 + unit; };
  return {{"m", DType::u8, {n}, Role::updated, any_code},
          {"v", DType::u8, {n}, Role::updated, any_code},
          {"m_absmax", DType::f32, {blocks(n)}, Role::updated, positive},
          {"v_absmax", DType::f32, {blocks(n)}, Role::updated, positive}};
}

// The code whose value is nearest to y.
double code_of(const DynamicTable& table, double y) {
  const auto below = [&](size_t code) { return y > (double{table[code]} + double{table[code + 1]}) / 2; };
  size_t code = 0;
  while (code < 255 && below(code)) ++code;
  return static_cast<double>(code);
}

void formula(Values& values, const std::vector<double>& g) {
  const double eps = 1e-8;
  const DynamicTable &of_m = dynamic_table(true), &of_v = dynamic_table(false);
  const auto n = static_cast<int64_t>(g.size());
  for (int64_t block = 0; block < blocks(n); ++block) {
    double &m_absmax = values["m_absmax"][block], &v_absmax = values["v_absmax"][block];
    const int64_t begin = block * kMomentBlock, end = std::min(begin + kMomentBlock, n);
    std::vector<double> m, v;
    double largest_m = 0, largest_v = 0;
    for (int64_t i = begin; i < end; ++i) {
      m.push_back(0.9 * of_m[static_cast<size_t>(values["m"][i])] * m_absmax + 0.1 * g[i]);
      v.push_back(0.999 * of_v[static_cast<size_t>(values["v"][i])] * v_absmax + 0.001 * g[i] * g[i]);
      largest_m = std::max(largest_m, std::abs(m.back()));
      largest_v = std::max(largest_v, v.back());
      const double unbiased_v = v.back() / (1 - 0.999 * 0.999 * 0.999);
      values["p"][i] -= kUpdateRate * (m.back() / (1 - 0.9 * 0.9 * 0.9)) / (std::sqrt(unbiased_v) + eps);
    }
    m_absmax = largest_m;
    v_absmax = largest_v;
    for (int64_t i = begin; i < end; ++i) {
      const double y = m[i - begin] / m_absmax, code = code_of(of_m, y);
      values["m"][i] = y < 0 && code == kSignedZero ? code - 1 : code;
      values["v"][i] = code_of(of_v, v[i - begin] / v_absmax);
    }
  }
}

constexpr OptimizerOp kAdamW8bit{
    .name = "adamw8bit", .run = adamw8bit, .flops = adamw_flops, .state = state, .formula = formula};

}  // namespace

std::vector<Case> adamw8bit_cases(Scale scale) {
  return update_cases(kAdamW8bit, scale, 300, {1, 7, 40, 256, 700});
}

}  // namespace flatshard::bench
