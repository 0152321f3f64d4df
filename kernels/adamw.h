#pragma once
// AdamW (Loshchilov, Hutter 2017), with t = step; optimizer_update.h has the rest:
//   m = beta1 m + (1 - beta1) g'      v = beta2 v + (1 - beta2) g'^2
//   p = p (1 - lr wd) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// where wd is weight_decay for elements before decay_end and 0 for the others. The state is {m, v}, (n) f32
// each.

#include "kernels/optimizer_update.h"
#include "runtime/stream.h"

namespace flatshard {

// The coefficients of the formula, shared by the CPU and the CUDA kernel:
//   p = fma(shrink, p, p)      p = fma(rate, m / fma(sqrt(v), inverse_bias, eps), p)
struct AdamWCoefficients {
  explicit AdamWCoefficients(const OptimizerUpdate& a);
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inverse_bias;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float rate;    // -lr / (1 - beta1^t)
  float shrink;  // -lr wd, for elements before decay_end
};

void adamw(Stream& stream, const OptimizerUpdate& a);

// check_update() for AdamW, which reads eps and step.
void check_adamw(const char* op, const OptimizerUpdate& a, std::initializer_list<RequiredState> states);

double adamw_flops(const OptimizerUpdate& a);

namespace cuda {
void adamw(Stream& stream, const OptimizerUpdate& a);
}  // namespace cuda

}  // namespace flatshard
