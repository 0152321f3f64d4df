#pragma once
// Lion (Chen et al. 2023) over one flat range, in place, with g' = g grad_scale:
//   p = p (1 - lr wd) - lr sign(beta1 m + (1 - beta1) g')      m = beta2 m + (1 - beta2) g'      copy = p
// where sign(0) = 0, and wd is weight_decay for elements before decay_end and 0 for the others. Arithmetic on
// elements is fp32; the coefficients are computed in double on the host. If skip is not zero nothing is
// written, copy included. Every element moves by lr, so lr is about a tenth of AdamW's, and weight_decay ten
// times AdamW's.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct Lion {
  Tensor p;           // (n) f32, the master weights
  Tensor m;           // (n) f32
  Tensor copy;        // (n) f32, bf16 or f16: p rounded to the compute dtype; may be empty
  Tensor g;           // (n) f32, bf16 or f16
  Tensor grad_scale;  // (1) f32, the clip coefficient; read when the kernel runs
  Tensor skip;        // (1) i32, read when the kernel runs; empty: zero
  double lr;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0.0;
  int64_t decay_end;  // number of elements with weight decay, in [0, n]
};

// The coefficients of the formula, shared by the CPU and the CUDA kernel:
//   p = fma(shrink, p, p) + (c > 0 ? rate : c < 0 ? -rate : 0)      c = fma(beta1, m, one_minus_beta1 g')
struct LionCoefficients {
  explicit LionCoefficients(const Lion& a);
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float rate;    // -lr
  float shrink;  // -lr wd, for elements before decay_end
};

void lion(Stream& stream, const Lion& a);

double min_bytes(const Lion& a);
double flops(const Lion& a);

namespace cuda {
void lion(Stream& stream, const Lion& a);
}  // namespace cuda

}  // namespace flatshard
