#pragma once
// The part of the CUDA kernels of optimizers that does not depend on the optimizer: the arguments as the GPU
// reads them, and the kernel of optimizers whose state has one fp32 value for each element. Such an optimizer
// brings a rule for one element (optimizer_range.h has its twin):
//   struct Rule {
//     static constexpr int kStates = 2;
//     AdamWCoefficients c;
//     // Updates the state and returns the new p; `decayed` is the old p after its decay.
//     __device__ float update(float decayed, float (&state)[kStates], float gradient) const;
//   };
//
// A thread block updates kUpdateBlock elements. Each thread loads all of its packs before it stores the
// first.

#include "kernels/cuda_util.cuh"
#include "kernels/optimizer_update.h"

namespace flatshard::cuda {

// An OptimizerUpdate without the state and the numbers of the rule.
template <class G, class P>
struct OptimizerRange {
  float* p;
  P* copy;  // may be null
  const G* g;
  const float* grad_scale;
  const int32_t* skip;  // may be null
  int64_t size, decay_end;
};

// Calls launch(range) with the OptimizerRange of `a`.
template <class Launch>
void visit_optimizer(const OptimizerUpdate& a, Launch&& launch) {
  const OptimizerShard& s = a.shard;
  visit_float(s.g.dtype, [&]<class G>() {
    visit_float(s.copy.dtype, [&]<class P>() {
      launch(OptimizerRange<G, P>{.p = s.p.as<float>(),
                                  .copy = s.copy.empty() ? nullptr : s.copy.as<P>(),
                                  .g = s.g.as<G>(),
                                  .grad_scale = a.grad_scale.as<float>(),
                                  .skip = a.skip.empty() ? nullptr : a.skip.as<int32_t>(),
                                  .size = s.p.size(),
                                  .decay_end = s.decay_end});
    });
  });
}

inline constexpr int kUpdateThreads = 256;
inline constexpr int kUpdatePerThread = 8;
inline constexpr int kUpdateBlock = kUpdateThreads * kUpdatePerThread;

template <int kStates, class G, class P>
struct ElementRange : OptimizerRange<G, P> {
  float* state[kStates];
};

// Updates kPacks packs of N elements, kStride apart, the first at element i.
template <int N, int kPacks, class Rule, class G, class P>
__device__ inline void update_packs(const ElementRange<Rule::kStates, G, P>& r, const Rule& rule, float scale,
                                    int64_t i) {
  constexpr int64_t kStride = static_cast<int64_t>(kUpdateThreads) * N;
  constexpr int kStates = Rule::kStates;
  Pack<float, N> p[kPacks], state[kPacks][kStates];
  Pack<G, N> g[kPacks];
  for (int k = 0; k < kPacks; ++k) {
    p[k] = load<float, N>(r.p + i + k * kStride);
    for (int s = 0; s < kStates; ++s) state[k][s] = load<float, N>(r.state[s] + i + k * kStride);
    g[k] = load<G, N>(r.g + i + k * kStride);
  }
  for (int k = 0; k < kPacks; ++k) {
    const int64_t at = i + k * kStride;
    Pack<P, N> copy;
    for (int j = 0; j < N; ++j) {
      const float shrink = at + j < r.decay_end ? rule.c.shrink : 0.0f;
      float values[kStates], &value = p[k].element[j];
      for (int s = 0; s < kStates; ++s) values[s] = state[k][s].element[j];
      value = rule.update(fmaf(shrink, value, value), values, to_float(g[k].element[j]) * scale);
      for (int s = 0; s < kStates; ++s) state[k][s].element[j] = values[s];
      copy.element[j] = from_float<P>(value);
    }
    store<float, N>(r.p + at, p[k]);
    for (int s = 0; s < kStates; ++s) store<float, N>(r.state[s] + at, state[k][s]);
    if (r.copy) store<P, N>(r.copy + at, copy);
  }
}

template <int N, class Rule, class G, class P>
__global__ void __launch_bounds__(kUpdateThreads)
    optimizer_kernel(ElementRange<Rule::kStates, G, P> r, Rule rule) {
  if (r.skip && *r.skip != 0) return;
  const float scale = *r.grad_scale;
  const int64_t begin = blockIdx.x * static_cast<int64_t>(kUpdateBlock);
  if (begin + kUpdateBlock <= r.size)
    return update_packs<N, kUpdatePerThread / N>(r, rule, scale, begin + threadIdx.x * N);
  for (int64_t i = begin + threadIdx.x; i < r.size; i += kUpdateThreads)
    update_packs<1, 1>(r, rule, scale, i);
}

template <class Rule>
void update_range(Stream& stream, const char* op, const OptimizerUpdate& a, const Rule& rule) {
  visit_optimizer(a, [&]<class G, class P>(const OptimizerRange<G, P>& range) {
    ElementRange<Rule::kStates, G, P> r{range, {}};
    bool packs = packable<float>(kUpdateBlock, r.p, r.copy, r.g);
    for (int s = 0; s < Rule::kStates; ++s) {
      r.state[s] = a.shard.state[static_cast<size_t>(s)].template as<float>();
      packs = packs && packable<float>(kUpdateBlock, r.state[s]);
    }
    const auto blocks = static_cast<unsigned>((r.size + kUpdateBlock - 1) / kUpdateBlock);
    const cudaStream_t to = native(stream);
    packs ? optimizer_kernel<kPackSize<float>><<<blocks, kUpdateThreads, 0, to>>>(r, rule)
          : optimizer_kernel<1><<<blocks, kUpdateThreads, 0, to>>>(r, rule);
    check_launch(stream, op);
  });
}

}  // namespace flatshard::cuda
