#pragma once
// AdamW (Loshchilov, Hutter 2017) over one flat range, in place, with g' = g grad_scale and t = step:
//   m = beta1 m + (1 - beta1) g'      v = beta2 v + (1 - beta2) g'^2
//   p = p (1 - lr wd) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)      copy = p
// where wd is weight_decay for elements before decay_end and 0 for the others. Arithmetic on elements is
// fp32; the coefficients are computed in double on the host. If skip is not zero nothing is written, copy
// included, so ranks that share the flag skip a step together.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct AdamW {
  Tensor p;           // (n) f32, the master weights
  Tensor m;           // (n) f32
  Tensor v;           // (n) f32
  Tensor copy;        // (n) f32, bf16 or f16: p rounded to the compute dtype; may be empty
  Tensor g;           // (n) f32, bf16 or f16
  Tensor grad_scale;  // (1) f32, the clip coefficient; read when the kernel runs
  Tensor skip;        // (1) i32, read when the kernel runs; empty: zero
  double lr;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.0;
  int64_t decay_end;  // number of elements with weight decay, in [0, n]
  int64_t step;       // counted from 1, without skipped steps
};

// The coefficients of the formula, shared by the CPU and the CUDA kernel:
//   p = fma(shrink, p, p)      p = fma(rate, m / fma(sqrt(v), inverse_bias, eps), p)
struct AdamWCoefficients {
  explicit AdamWCoefficients(const AdamW& a);
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float inverse_bias;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float rate;    // -lr / (1 - beta1^t)
  float shrink;  // -lr wd, for elements before decay_end
};

void adamw(Stream& stream, const AdamW& a);

// Throws an Error that names `op` unless tensors and numbers are valid, with m and v of dtype `moments`.
void check_adamw(const char* op, const AdamW& a, DType moments);

double min_bytes(const AdamW& a);
double flops(const AdamW& a);

namespace cuda {
void adamw(Stream& stream, const AdamW& a);
}  // namespace cuda

}  // namespace flatshard
