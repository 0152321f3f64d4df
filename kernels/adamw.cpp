#include "kernels/adamw.h"

#include <algorithm>
#include <cmath>

#include "build_config.h"
#include "kernels/optimizer_args.h"
#include "kernels/parallel_write.h"
#include "kernels/planned_op.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

constexpr int64_t kBlock = 8192;

// Updates elements [begin, end), with the weight decay `shrink_by`.
template <class G, class P, class Output>
void update(const AdamW& a, const AdamWCoefficients& c, float shrink_by, int64_t begin, int64_t end,
            Output out) {
  if (begin >= end) return;
  float *p = a.p.as<float>() + begin, *m = a.m.as<float>() + begin, *v = a.v.as<float>() + begin;
  const G* g = a.g.as<G>() + begin;
  P* copy = a.copy.empty() ? nullptr : a.copy.as<P>() + begin;
  const Floats beta1 = splat(c.beta1), beta2 = splat(c.beta2), eps = splat(c.eps);
  const Floats inverse_bias = splat(c.inverse_bias), rate = splat(c.rate), shrink = splat(shrink_by);
  const float scale = *a.grad_scale.as<float>();
  for_each_vector(end - begin, [&](int64_t i, auto lanes) {
    const Floats gradient = load(g + i, lanes) * scale;
    const Floats mean = fma(beta1, load(m + i, lanes), c.one_minus_beta1 * gradient);
    const Floats square = fma(beta2, load(v + i, lanes), c.one_minus_beta2 * gradient * gradient);
    const Floats old = load(p + i, lanes), decayed = fma(shrink, old, old);
    const Floats updated = fma(rate, mean / fma(sqrt(square), inverse_bias, eps), decayed);
    store(m + i, mean, lanes);
    store(v + i, square, lanes);
    store(p + i, updated, lanes);
    if (copy) out.store(copy + i, updated, lanes);
  });
}

template <class G, class P>
void update_all(const AdamW& a) {
  if (!a.skip.empty() && *a.skip.as<int32_t>() != 0) return;
  const AdamWCoefficients c(a);
  parallel_write(a.copy.bytes(), a.p.size(), kBlock, [&](int64_t begin, int64_t end, auto out) {
    update<G, P>(a, c, c.shrink, begin, std::min(end, a.decay_end), out);
    update<G, P>(a, c, 0.0f, std::max(begin, a.decay_end), end, out);
  });
}

}  // namespace
}  // namespace cpu

AdamWCoefficients::AdamWCoefficients(const AdamW& a) {
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

void check_adamw(const char* op, const AdamW& a, DType moments) {
  check_state(op, "p", a.p, DType::f32, a.p.size());
  check_state(op, "m", a.m, moments, a.p.size());
  check_state(op, "v", a.v, moments, a.p.size());
  check_update(op, a);
  check(std::isfinite(a.eps) && a.eps > 0, op, ": eps is ", a.eps, ", must be finite and above 0");
  check(a.step >= 1, op, ": step is ", a.step, ", must be at least 1");
}

void adamw(Stream& stream, const AdamW& a) {
  check_adamw("adamw", a, DType::f32);
  if (a.p.empty() || plans(stream, "adamw", a, a.p)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::adamw(stream, a);
  stream.run("adamw", [a] {
    visit_float(a.g.dtype,
                [&]<class G>() { visit_float(a.copy.dtype, [&]<class P>() { cpu::update_all<G, P>(a); }); });
  });
}

double min_bytes(const AdamW& a) {
  return static_cast<double>(2 * (a.p.bytes() + a.m.bytes() + a.v.bytes()) + a.copy.bytes() + a.g.bytes());
}
double flops(const AdamW& a) { return 14.0 * static_cast<double>(a.p.size()); }

}  // namespace flatshard
