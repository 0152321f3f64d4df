#include "kernels/optimizer_update.h"

#include <cmath>

#include "kernels/op.h"

namespace flatshard {

void check_update(const char* op, const OptimizerUpdate& a, std::initializer_list<RequiredState> states) {
  const OptimizerShard& s = a.shard;
  const int64_t n = s.p.size();
  check_elements(op, "p", s.p, DType::f32, n);
  const Tensor* state = s.state.data();
  for (const RequiredState& required : states)
    check_elements(op, required.name, *state++, required.dtype, (n + required.block - 1) / required.block);
  check(is_float(s.g.dtype) && s.g.size() == n, op, ": g is ", s.g.dtype, " ", s.g.shape,
        ", must be f32, bf16 or f16 with ", n, " elements");
  check(is_float(s.copy.dtype) && (s.copy.empty() || s.copy.size() == n), op, ": copy is ", s.copy.dtype, " ",
        s.copy.shape, ", must be empty, or f32, bf16 or f16 with ", n, " elements");
  check(a.grad_scale.dtype == DType::f32 && a.grad_scale.size() == 1, op, ": grad_scale is ",
        a.grad_scale.dtype, " ", a.grad_scale.shape, ", must be one f32");
  check(a.skip.empty() || (a.skip.dtype == DType::i32 && a.skip.size() == 1), op, ": skip is ", a.skip.dtype,
        " ", a.skip.shape, ", must be empty or one i32");
  check(std::isfinite(a.lr) && a.lr >= 0, op, ": lr is ", a.lr, ", must be finite and not negative");
  check(a.beta1 >= 0 && a.beta1 < 1, op, ": beta1 is ", a.beta1, ", must be in [0, 1)");
  check(a.beta2 >= 0 && a.beta2 < 1, op, ": beta2 is ", a.beta2, ", must be in [0, 1)");
  check(std::isfinite(a.weight_decay) && a.weight_decay >= 0, op, ": weight_decay is ", a.weight_decay,
        ", must be finite and not negative");
  check(s.decay_end >= 0 && s.decay_end <= n, op, ": decay_end is ", s.decay_end, ", must be in [0, ", n,
        "]");
}

double min_bytes(const OptimizerShard& shard) {
  int64_t updated = shard.p.bytes();
  for (const Tensor& state : shard.state) updated += state.bytes();
  return static_cast<double>(2 * updated + shard.copy.bytes() + shard.g.bytes());
}

}  // namespace flatshard
