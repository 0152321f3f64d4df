// AdamW on the GPU. Each operation is the same as in the CPU kernel, so both give the same bits (sums with a
// product use fmaf; division and square root are IEEE). A thread block updates kBlock elements. Each thread
// loads all of its packs before it stores the first.
//
// Memory bandwidth limits it: 30 bytes an element for gradients in fp32 and a copy in bf16. A thread updates
// 8 elements, with 56 registers, so four blocks of 256 threads fit on an SM, with 128 KiB in flight.

#include "kernels/adamw.h"
#include "kernels/cuda_util.cuh"
#include "kernels/optimizer_range.cuh"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 8;
constexpr int kBlock = kThreads * kPerThread;
constexpr int kPack = kPackSize<float>;

template <class G, class P>
struct Range : OptimizerRange<G, P> {
  float *m, *v;
};

__device__ inline void update(float& p, float& m, float& v, float gradient, float shrink,
                              const AdamWCoefficients& c) {
  m = fmaf(c.beta1, m, c.one_minus_beta1 * gradient);
  v = fmaf(c.beta2, v, c.one_minus_beta2 * gradient * gradient);
  p = fmaf(c.rate, m / fmaf(sqrtf(v), c.inverse_bias, c.eps), fmaf(shrink, p, p));
}

// Updates kPacks packs of N elements, kStride apart, the first at element i.
template <int N, int kPacks, class G, class P>
__device__ inline void update_packs(const Range<G, P>& r, const AdamWCoefficients& c, float scale,
                                    int64_t i) {
  constexpr int64_t kStride = static_cast<int64_t>(kThreads) * N;
  Pack<float, N> p[kPacks], m[kPacks], v[kPacks];
  Pack<G, N> g[kPacks];
  for (int k = 0; k < kPacks; ++k) {
    p[k] = load<float, N>(r.p + i + k * kStride);
    m[k] = load<float, N>(r.m + i + k * kStride);
    v[k] = load<float, N>(r.v + i + k * kStride);
    g[k] = load<G, N>(r.g + i + k * kStride);
  }
  for (int k = 0; k < kPacks; ++k) {
    const int64_t at = i + k * kStride;
    Pack<P, N> copy;
    for (int j = 0; j < N; ++j) {
      const float shrink = at + j < r.decay_end ? c.shrink : 0.0f;
      update(p[k].element[j], m[k].element[j], v[k].element[j], to_float(g[k].element[j]) * scale, shrink, c);
      copy.element[j] = from_float<P>(p[k].element[j]);
    }
    store<float, N>(r.p + at, p[k]);
    store<float, N>(r.m + at, m[k]);
    store<float, N>(r.v + at, v[k]);
    if (r.copy) store<P, N>(r.copy + at, copy);
  }
}

template <int N, class G, class P>
__global__ void __launch_bounds__(kThreads) adamw_kernel(Range<G, P> r, AdamWCoefficients c) {
  if (r.skip && *r.skip != 0) return;
  const float scale = *r.grad_scale;
  const int64_t begin = blockIdx.x * static_cast<int64_t>(kBlock);
  if (begin + kBlock <= r.size) return update_packs<N, kPerThread / N>(r, c, scale, begin + threadIdx.x * N);
  for (int64_t i = begin + threadIdx.x; i < r.size; i += kThreads) update_packs<1, 1>(r, c, scale, i);
}

template <int N, class G, class P>
void launch(Stream& stream, const Range<G, P>& r, const AdamWCoefficients& c) {
  const auto blocks = static_cast<unsigned>((r.size + kBlock - 1) / kBlock);
  adamw_kernel<N><<<blocks, kThreads, 0, native(stream)>>>(r, c);
  check_launch(stream, "adamw");
}

}  // namespace

void adamw(Stream& stream, const AdamW& a) {
  const AdamWCoefficients c(a);
  visit_optimizer(a, [&]<class G, class P>(const OptimizerRange<G, P>& range) {
    const Range<G, P> r{range, a.m.as<float>(), a.v.as<float>()};
    if (packable<float>(kBlock, r.p, r.m, r.v, r.copy, r.g))
      launch<kPack>(stream, r, c);
    else
      launch<1>(stream, r, c);
  });
}

}  // namespace flatshard::cuda
