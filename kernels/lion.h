#pragma once
// Lion (Chen et al. 2023); optimizer_update.h has the rest:
//   p = p (1 - lr wd) - lr sign(beta1 m + (1 - beta1) g')      m = beta2 m + (1 - beta2) g'
// where sign(0) = 0, and wd is weight_decay for elements before decay_end and 0 for the others. The state is
// {m}, (n) f32; eps and step are not read. Every element moves by lr, so lr is about a tenth of AdamW's, and
// weight_decay ten times AdamW's.

#include "kernels/optimizer_update.h"
#include "runtime/stream.h"

namespace flatshard {

// The coefficients of the formula, shared by the CPU and the CUDA kernel:
//   p = fma(shrink, p, p) + (c > 0 ? rate : c < 0 ? -rate : 0)      c = fma(beta1, m, one_minus_beta1 g')
struct LionCoefficients {
  explicit LionCoefficients(const OptimizerUpdate& a);
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float rate;    // -lr
  float shrink;  // -lr wd, for elements before decay_end
};

void lion(Stream& stream, const OptimizerUpdate& a);

double lion_flops(const OptimizerUpdate& a);

namespace cuda {
void lion(Stream& stream, const OptimizerUpdate& a);
}  // namespace cuda

}  // namespace flatshard
