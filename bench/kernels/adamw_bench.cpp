// Cases of AdamW, shared by tests and benchmark.

#include <cmath>

#include "bench/kernels/optimizer_case.h"
#include "kernels/adamw.h"

namespace flatshard::bench {
namespace {

std::vector<Arg> state(int64_t n) {
  return {{"m", DType::f32, {n}, Role::updated},
          {"v", DType::f32, {n}, Role::updated, [](int64_t, double unit) { return 0.01 + unit; }}};
}

void formula(Values& values, const std::vector<double>& g) {
  const double eps = 1e-8;
  for (size_t i = 0; i < g.size(); ++i) {
    double &m = values["m"][i], &v = values["v"][i];
    m = 0.9 * m + 0.1 * g[i];
    v = 0.999 * v + 0.001 * g[i] * g[i];
    const double unbiased_m = m / (1 - 0.9 * 0.9 * 0.9), unbiased_v = v / (1 - 0.999 * 0.999 * 0.999);
    values["p"][i] -= kUpdateRate * unbiased_m / (std::sqrt(unbiased_v) + eps);
  }
}

constexpr OptimizerOp kAdamW{
    .name = "adamw", .run = adamw, .flops = adamw_flops, .state = state, .formula = formula};

}  // namespace

std::vector<Case> adamw_cases(Scale scale) { return update_cases(kAdamW, scale, 48, {1, 7, 16, 40, 203}); }

}  // namespace flatshard::bench
