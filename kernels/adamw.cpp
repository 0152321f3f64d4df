#include "kernels/adamw.h"

#include <cmath>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/optimizer_range.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

struct AdamWRule {
  using Coefficients = AdamWCoefficients;
  static constexpr size_t kStates = 2;

  explicit AdamWRule(const AdamWCoefficients& c)
      : beta1(splat(c.beta1)),
        one_minus_beta1(splat(c.one_minus_beta1)),
        beta2(splat(c.beta2)),
        one_minus_beta2(splat(c.one_minus_beta2)),
        inverse_bias(splat(c.inverse_bias)),
        eps(splat(c.eps)),
        rate(splat(c.rate)) {}

  Floats update(Floats decayed, std::array<Floats, kStates>& state, Floats gradient) const {
    auto& [mean, square] = state;
    mean = fma(beta1, mean, one_minus_beta1 * gradient);
    square = fma(beta2, square, one_minus_beta2 * gradient * gradient);
    return fma(rate, mean / fma(sqrt(square), inverse_bias, eps), decayed);
  }

  Floats beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_bias, eps, rate;
};

}  // namespace
}  // namespace cpu

AdamWCoefficients::AdamWCoefficients(const OptimizerUpdate& a) {
  const auto t = static_cast<double>(a.step);
  beta1 = static_cast<float>(a.beta1);
  one_minus_beta1 = static_cast<float>(1 - a.beta1);
  beta2 = static_cast<float>(a.beta2);
  one_minus_beta2 = static_cast<float>(1 - a.beta2);
  inverse_bias = static_cast<float>(1 / std::sqrt(1 - std::pow(a.beta2, t)));
  eps = static_cast<float>(a.eps);
  rate = static_cast<float>(0 - a.lr / (1 - std::pow(a.beta1, t)));
  shrink = static_cast<float>(0 - a.lr * a.weight_decay);
}

void check_adamw(const char* op, const OptimizerUpdate& a, std::initializer_list<RequiredState> states) {
  check_update(op, a, states);
  check(std::isfinite(a.eps) && a.eps > 0, op, ": eps is ", a.eps, ", must be finite and above 0");
  check(a.step >= 1, op, ": step is ", a.step, ", must be at least 1");
}

void adamw(Stream& stream, const OptimizerUpdate& a) {
  check_adamw("adamw", a, {{"m"}, {"v"}});
  if (a.shard.p.empty() || plans(stream, "adamw", a.shard.p, adamw_flops(a), min_bytes(a.shard))) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::adamw(stream, a);
  stream.run("adamw", [a] { cpu::update_range<cpu::AdamWRule>(a); });
}

double adamw_flops(const OptimizerUpdate& a) { return 14.0 * static_cast<double>(a.shard.p.size()); }

}  // namespace flatshard
