// Lion on the GPU. Each operation is the same as in the CPU kernel, so both give the same bits.
//
// Memory bandwidth limits it: 22 bytes an element for gradients in fp32 and a copy in bf16. A thread updates
// 8 elements, with 40 registers, so six blocks of 256 threads fit on an SM, with 144 KiB in flight.

#include "kernels/lion.h"
#include "kernels/optimizer_range.cuh"

namespace flatshard::cuda {
namespace {

struct LionRule {
  static constexpr int kStates = 1;
  LionCoefficients c;

  __device__ float update(float decayed, float (&state)[kStates], float gradient) const {
    float& m = state[0];
    const float direction = fmaf(c.beta1, m, c.one_minus_beta1 * gradient);
    m = fmaf(c.beta2, m, c.one_minus_beta2 * gradient);
    return decayed + (direction > 0.0f ? c.rate : (direction < 0.0f ? -c.rate : 0.0f));
  }
};

}  // namespace

void lion(Stream& stream, const OptimizerUpdate& a) {
  update_range(stream, "lion", a, LionRule{LionCoefficients(a)});
}

}  // namespace flatshard::cuda
