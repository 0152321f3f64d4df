#pragma once
// The CPU loop of optimizers whose state has one fp32 value for each element. An optimizer brings a rule for
// sixteen elements, made from the coefficients that it shares with the CUDA kernel (optimizer_range.cuh):
//   struct Rule {
//     using Coefficients = AdamWCoefficients;  // made from an OptimizerUpdate; shrink is -lr weight_decay
//     static constexpr size_t kStates = 2;
//     explicit Rule(const Coefficients& c);
//     // Updates the state and returns the new p; `decayed` is the old p after its decay.
//     Floats update(Floats decayed, std::array<Floats, kStates>& state, Floats gradient) const;
//   };

#include <algorithm>
#include <array>

#include "kernels/optimizer_update.h"
#include "kernels/parallel_write.h"

namespace flatshard::cpu {

// Updates elements [begin, end), with the weight decay `shrink_by`.
template <class Rule, class G, class P, class Output>
void update_elements(const OptimizerUpdate& a, const typename Rule::Coefficients& c, float shrink_by,
                     int64_t begin, int64_t end, Output out) {
  if (begin >= end) return;
  const OptimizerShard& s = a.shard;
  float* const p = s.p.as<float>() + begin;
  const G* const g = s.g.as<G>() + begin;
  P* const copy = s.copy.empty() ? nullptr : s.copy.as<P>() + begin;
  std::array<float*, Rule::kStates> state;
  for (size_t k = 0; k < Rule::kStates; ++k) state[k] = s.state[k].template as<float>() + begin;
  const Rule rule(c);
  const simd::Floats shrink = simd::splat(shrink_by);
  const float scale = *a.grad_scale.as<float>();
  simd::for_each_vector(end - begin, [&](int64_t i, auto lanes) {
    const simd::Floats gradient = simd::load(g + i, lanes) * scale;
    std::array<simd::Floats, Rule::kStates> values;
    for (size_t k = 0; k < Rule::kStates; ++k) values[k] = simd::load(state[k] + i, lanes);
    const simd::Floats old = simd::load(p + i, lanes);
    const simd::Floats updated = rule.update(simd::fma(shrink, old, old), values, gradient);
    for (size_t k = 0; k < Rule::kStates; ++k) simd::store(state[k] + i, values[k], lanes);
    simd::store(p + i, updated, lanes);
    if (copy) out.store(copy + i, updated, lanes);
  });
}

template <class Rule, class G, class P>
void update_typed(const OptimizerUpdate& a) {
  constexpr int64_t kBlock = 8192;
  const typename Rule::Coefficients c(a);
  const int64_t decay_end = a.shard.decay_end;
  parallel_write(a.shard.copy.bytes(), a.shard.p.size(), kBlock, [&](int64_t begin, int64_t end, auto out) {
    update_elements<Rule, G, P>(a, c, c.shrink, begin, std::min(end, decay_end), out);
    update_elements<Rule, G, P>(a, c, 0.0f, std::max(begin, decay_end), end, out);
  });
}

template <class Rule>
void update_range(const OptimizerUpdate& a) {
  if (!a.skip.empty() && *a.skip.as<int32_t>() != 0) return;
  visit_float(a.shard.g.dtype, [&]<class G>() {
    visit_float(a.shard.copy.dtype, [&]<class P>() { update_typed<Rule, G, P>(a); });
  });
}

}  // namespace flatshard::cpu
