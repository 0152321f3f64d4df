#include "kernels/lion.h"

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/optimizer_range.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

struct LionRule {
  using Coefficients = LionCoefficients;
  static constexpr size_t kStates = 1;

  explicit LionRule(const LionCoefficients& c)
      : beta1(splat(c.beta1)),
        one_minus_beta1(splat(c.one_minus_beta1)),
        beta2(splat(c.beta2)),
        one_minus_beta2(splat(c.one_minus_beta2)),
        down(splat(c.rate)),
        up(splat(-c.rate)) {}

  Floats update(Floats decayed, std::array<Floats, kStates>& state, Floats gradient) const {
    Floats& mean = state[0];
    const Floats direction = fma(beta1, mean, one_minus_beta1 * gradient);
    mean = fma(beta2, mean, one_minus_beta2 * gradient);
    return decayed + (direction > 0.0f ? down : (direction < 0.0f ? up : Floats{}));
  }

  Floats beta1, one_minus_beta1, beta2, one_minus_beta2, down, up;
};

}  // namespace
}  // namespace cpu

LionCoefficients::LionCoefficients(const OptimizerUpdate& a)
    : beta1(static_cast<float>(a.beta1)),
      one_minus_beta1(static_cast<float>(1 - a.beta1)),
      beta2(static_cast<float>(a.beta2)),
      one_minus_beta2(static_cast<float>(1 - a.beta2)),
      rate(static_cast<float>(0 - a.lr)),
      shrink(static_cast<float>(0 - a.lr * a.weight_decay)) {}

void lion(Stream& stream, const OptimizerUpdate& a) {
  check_update("lion", a, {{"m"}});
  if (a.shard.p.empty() || plans(stream, "lion", a.shard.p, lion_flops(a), min_bytes(a.shard))) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::lion(stream, a);
  stream.run("lion", [a] { cpu::update_range<cpu::LionRule>(a); });
}

double lion_flops(const OptimizerUpdate& a) { return 10.0 * static_cast<double>(a.shard.p.size()); }

}  // namespace flatshard
