#pragma once
// Checks of the arguments that optimizers share, which adamw.h documents. They throw an Error that names
// `op`.

#include <cmath>

#include "runtime/tensor.h"

namespace flatshard {

// Checks p or a tensor of the optimizer's state.
inline void check_state(const char* op, const char* name, const Tensor& t, DType dtype, int64_t n) {
  check(t.dtype == dtype && t.size() == n, op, ": ", name, " is ", t.dtype, " ", t.shape, ", must be ", dtype,
        " with ", n, " elements");
}

// Checks all arguments but p and the state.
template <class Args>
void check_update(const char* op, const Args& a) {
  check(is_float(a.g.dtype) && a.g.size() == a.p.size(), op, ": g is ", a.g.dtype, " ", a.g.shape,
        ", must be f32, bf16 or f16 with ", a.p.size(), " elements");
  check(is_float(a.copy.dtype) && (a.copy.empty() || a.copy.size() == a.p.size()), op, ": copy is ",
        a.copy.dtype, " ", a.copy.shape, ", must be empty, or f32, bf16 or f16 with ", a.p.size(),
        " elements");
  check(a.grad_scale.dtype == DType::f32 && a.grad_scale.size() == 1, op, ": grad_scale is ",
        a.grad_scale.dtype, " ", a.grad_scale.shape, ", must be one f32");
  check(a.skip.empty() || (a.skip.dtype == DType::i32 && a.skip.size() == 1), op, ": skip is ", a.skip.dtype,
        " ", a.skip.shape, ", must be empty or one i32");
  check(std::isfinite(a.lr) && a.lr >= 0, op, ": lr is ", a.lr, ", must be finite and not negative");
  check(a.beta1 >= 0 && a.beta1 < 1, op, ": beta1 is ", a.beta1, ", must be in [0, 1)");
  check(a.beta2 >= 0 && a.beta2 < 1, op, ": beta2 is ", a.beta2, ", must be in [0, 1)");
  check(std::isfinite(a.weight_decay) && a.weight_decay >= 0, op, ": weight_decay is ", a.weight_decay,
        ", must be finite and not negative");
  check(a.decay_end >= 0 && a.decay_end <= a.p.size(), op, ": decay_end is ", a.decay_end,
        ", must be in [0, ", a.p.size(), "]");
}

}  // namespace flatshard
