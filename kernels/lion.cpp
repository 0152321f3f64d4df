#include "kernels/lion.h"

#include <algorithm>

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
void update(const Lion& a, const LionCoefficients& c, float shrink_by, int64_t begin, int64_t end,
            Output out) {
  if (begin >= end) return;
  float *p = a.p.as<float>() + begin, *m = a.m.as<float>() + begin;
  const G* g = a.g.as<G>() + begin;
  P* copy = a.copy.empty() ? nullptr : a.copy.as<P>() + begin;
  const Floats beta1 = splat(c.beta1), beta2 = splat(c.beta2), shrink = splat(shrink_by);
  const Floats down = splat(c.rate), up = splat(-c.rate);
  const float scale = *a.grad_scale.as<float>();
  for_each_vector(end - begin, [&](int64_t i, auto lanes) {
    const Floats gradient = load(g + i, lanes) * scale, mean = load(m + i, lanes);
    const Floats direction = fma(beta1, mean, c.one_minus_beta1 * gradient);
    const Floats step = direction > 0.0f ? down : (direction < 0.0f ? up : Floats{});
    const Floats old = load(p + i, lanes), updated = fma(shrink, old, old) + step;
    store(m + i, fma(beta2, mean, c.one_minus_beta2 * gradient), lanes);
    store(p + i, updated, lanes);
    if (copy) out.store(copy + i, updated, lanes);
  });
}

template <class G, class P>
void update_all(const Lion& a) {
  if (!a.skip.empty() && *a.skip.as<int32_t>() != 0) return;
  const LionCoefficients c(a);
  parallel_write(a.copy.bytes(), a.p.size(), kBlock, [&](int64_t begin, int64_t end, auto out) {
    update<G, P>(a, c, c.shrink, begin, std::min(end, a.decay_end), out);
    update<G, P>(a, c, 0.0f, std::max(begin, a.decay_end), end, out);
  });
}

}  // namespace
}  // namespace cpu

LionCoefficients::LionCoefficients(const Lion& a)
    : beta1(static_cast<float>(a.beta1)),
      one_minus_beta1(static_cast<float>(1 - a.beta1)),
      beta2(static_cast<float>(a.beta2)),
      one_minus_beta2(static_cast<float>(1 - a.beta2)),
      rate(static_cast<float>(0 - a.lr)),
      shrink(static_cast<float>(0 - a.lr * a.weight_decay)) {}

void lion(Stream& stream, const Lion& a) {
  check_state("lion", "p", a.p, DType::f32, a.p.size());
  check_state("lion", "m", a.m, DType::f32, a.p.size());
  check_update("lion", a);
  if (a.p.empty() || plans(stream, "lion", a, a.p)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::lion(stream, a);
  stream.run("lion", [a] {
    visit_float(a.g.dtype,
                [&]<class G>() { visit_float(a.copy.dtype, [&]<class P>() { cpu::update_all<G, P>(a); }); });
  });
}

double min_bytes(const Lion& a) {
  return static_cast<double>(2 * (a.p.bytes() + a.m.bytes()) + a.copy.bytes() + a.g.bytes());
}
double flops(const Lion& a) { return 10.0 * static_cast<double>(a.p.size()); }

}  // namespace flatshard
