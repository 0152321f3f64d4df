#pragma once
// The arguments that the CUDA kernels of optimizers share: all except the optimizer's state.

#include "runtime/tensor.h"

namespace flatshard::cuda {

template <class G, class P>
struct OptimizerRange {
  float* p;
  P* copy;  // may be null
  const G* g;
  const float* grad_scale;
  const int32_t* skip;  // may be null
  int64_t size, decay_end;
};

// Calls launch(range) with the OptimizerRange of `a`, the arguments of an optimizer.
template <class Args, class Launch>
void visit_optimizer(const Args& a, Launch&& launch) {
  visit_float(a.g.dtype, [&]<class G>() {
    visit_float(a.copy.dtype, [&]<class P>() {
      launch(OptimizerRange<G, P>{.p = a.p.template as<float>(),
                                  .copy = a.copy.empty() ? nullptr : a.copy.template as<P>(),
                                  .g = a.g.template as<G>(),
                                  .grad_scale = a.grad_scale.template as<float>(),
                                  .skip = a.skip.empty() ? nullptr : a.skip.template as<int32_t>(),
                                  .size = a.p.size(),
                                  .decay_end = a.decay_end});
    });
  });
}

}  // namespace flatshard::cuda
