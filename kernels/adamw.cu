// AdamW on the GPU. Each operation is the same as in the CPU kernel, so both give the same bits (sums with a
// product use fmaf; division and square root are IEEE).
//
// Memory bandwidth limits it: 30 bytes an element for gradients in fp32 and a copy in bf16. A thread updates
// 8 elements, with 56 registers, so four blocks of 256 threads fit on an SM, with 128 KiB in flight.

#include "kernels/adamw.h"
#include "kernels/optimizer_range.cuh"

namespace flatshard::cuda {
namespace {

struct AdamWRule {
  static constexpr int kStates = 2;
  AdamWCoefficients c;

  __device__ float update(float decayed, float (&state)[kStates], float gradient) const {
    auto& [m, v] = state;
    m = fmaf(c.beta1, m, c.one_minus_beta1 * gradient);
    v = fmaf(c.beta2, v, c.one_minus_beta2 * gradient * gradient);
    return fmaf(c.rate, m / fmaf(sqrtf(v), c.inverse_bias, c.eps), decayed);
  }
};

}  // namespace

void adamw(Stream& stream, const OptimizerUpdate& a) {
  update_range(stream, "adamw", a, AdamWRule{AdamWCoefficients(a)});
}

}  // namespace flatshard::cuda
