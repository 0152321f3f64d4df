#pragma once
// The arguments that the CUDA kernels of adamw.h and adamw8bit.h share: all but the moments.

#include "kernels/adamw.h"

namespace flatshard::cuda {

template <class G, class P>
struct AdamWRange {
  float* p;
  P* copy;  // or null
  const G* g;
  const float* grad_scale;
  const int32_t* skip;  // or null
  int64_t size, decay_end;
};

// Calls launch(range) with the range of the types of a.
template <class Launch>
void visit_adamw(const AdamW& a, Launch&& launch) {
  visit_float(a.g.dtype, [&]<class G>() {
    visit_float(a.copy.dtype, [&]<class P>() {
      launch(AdamWRange<G, P>{.p = a.p.as<float>(),
                              .copy = a.copy.empty() ? nullptr : a.copy.as<P>(),
                              .g = a.g.as<G>(),
                              .grad_scale = a.grad_scale.as<float>(),
                              .skip = a.skip.empty() ? nullptr : a.skip.as<int32_t>(),
                              .size = a.p.size(),
                              .decay_end = a.decay_end});
    });
  });
}

}  // namespace flatshard::cuda
