// Cases of Lion, shared by tests and benchmark.

#include "bench/kernels/optimizer_case.h"
#include "kernels/lion.h"

namespace flatshard::bench {
namespace {

std::vector<Arg> state(int64_t n) { return {{"m", DType::f32, {n}, Role::updated}}; }

void formula(Values& v, const std::vector<double>& g) {
  for (size_t i = 0; i < g.size(); ++i) {
    double& m = v["m"][i];
    const double direction = 0.9 * m + 0.1 * g[i];
    v["p"][i] -= kUpdateRate * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
    m = 0.99 * m + 0.01 * g[i];
  }
}

constexpr OptimizerOp kLion{
    .name = "lion", .run = lion, .flops = lion_flops, .beta2 = 0.99, .state = state, .formula = formula};

}  // namespace

std::vector<Case> lion_cases(Scale scale) { return update_cases(kLion, scale, 48, {1, 7, 16, 40, 203}); }

}  // namespace flatshard::bench
