// Lion on the GPU. Each operation is the same as in the CPU kernel, so both give the same bits. A thread
// block updates kBlock elements. Each thread loads all of its packs before it stores the first.
//
// Memory bandwidth limits it: 22 bytes an element for gradients in fp32 and a copy in bf16. A thread updates
// 8 elements, with 48 registers, so five blocks of 256 threads fit on an SM, with 120 KiB in flight.

#include "kernels/cuda_util.cuh"
#include "kernels/lion.h"
#include "kernels/optimizer_range.cuh"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 8;
constexpr int kBlock = kThreads * kPerThread;
constexpr int kPack = kPackSize<float>;

template <class G, class P>
struct Range : OptimizerRange<G, P> {
  float* m;
};

__device__ inline void update(float& p, float& m, float gradient, float shrink, const LionCoefficients& c) {
  const float direction = fmaf(c.beta1, m, c.one_minus_beta1 * gradient);
  const float step = direction > 0.0f ? c.rate : (direction < 0.0f ? -c.rate : 0.0f);
  m = fmaf(c.beta2, m, c.one_minus_beta2 * gradient);
  p = fmaf(shrink, p, p) + step;
}

// Updates kPacks packs of N elements, kStride apart, the first at element i.
template <int N, int kPacks, class G, class P>
__device__ inline void update_packs(const Range<G, P>& r, const LionCoefficients& c, float scale, int64_t i) {
  constexpr int64_t kStride = static_cast<int64_t>(kThreads) * N;
  Pack<float, N> p[kPacks], m[kPacks];
  Pack<G, N> g[kPacks];
  for (int k = 0; k < kPacks; ++k) {
    p[k] = load<float, N>(r.p + i + k * kStride);
    m[k] = load<float, N>(r.m + i + k * kStride);
    g[k] = load<G, N>(r.g + i + k * kStride);
  }
  for (int k = 0; k < kPacks; ++k) {
    const int64_t at = i + k * kStride;
    Pack<P, N> copy;
    for (int j = 0; j < N; ++j) {
      const float shrink = at + j < r.decay_end ? c.shrink : 0.0f;
      update(p[k].element[j], m[k].element[j], to_float(g[k].element[j]) * scale, shrink, c);
      copy.element[j] = from_float<P>(p[k].element[j]);
    }
    store<float, N>(r.p + at, p[k]);
    store<float, N>(r.m + at, m[k]);
    if (r.copy) store<P, N>(r.copy + at, copy);
  }
}

template <int N, class G, class P>
__global__ void __launch_bounds__(kThreads) lion_kernel(Range<G, P> r, LionCoefficients c) {
  if (r.skip && *r.skip != 0) return;
  const float scale = *r.grad_scale;
  const int64_t begin = blockIdx.x * static_cast<int64_t>(kBlock);
  if (begin + kBlock <= r.size) return update_packs<N, kPerThread / N>(r, c, scale, begin + threadIdx.x * N);
  for (int64_t i = begin + threadIdx.x; i < r.size; i += kThreads) update_packs<1, 1>(r, c, scale, i);
}

template <int N, class G, class P>
void launch(Stream& stream, const Range<G, P>& r, const LionCoefficients& c) {
  const auto blocks = static_cast<unsigned>((r.size + kBlock - 1) / kBlock);
  lion_kernel<N><<<blocks, kThreads, 0, native(stream)>>>(r, c);
  check_launch(stream, "lion");
}

}  // namespace

void lion(Stream& stream, const Lion& a) {
  const LionCoefficients c(a);
  visit_optimizer(a, [&]<class G, class P>(const OptimizerRange<G, P>& range) {
    const Range<G, P> r{range, a.m.as<float>()};
    if (packable<float>(kBlock, r.p, r.m, r.copy, r.g))
      launch<kPack>(stream, r, c);
    else
      launch<1>(stream, r, c);
  });
}

}  // namespace flatshard::cuda
