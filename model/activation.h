#pragma once
// The activation of an MLP, of (N, F): a = f(gate) up with f = silu or gelu, or a = gelu(up), by a kind of
// GELU. gate and up are side by side in each row; a clamped unit has them in turn (kernels/clamped_glu.h).

#include "model/config.h"
#include "model/layer_call.h"
#include "model/rows.h"

namespace flatshard {

class Activation {
 public:
  explicit Activation(MlpKind kind, double limit = 0) : kind_(kind), limit_(static_cast<float>(limit)) {}

  bool is_gated() const { return kind_ != MlpKind::gelu && kind_ != MlpKind::quick_gelu; }
  // For Linear::input() and output(): GELU takes no strides, so its rows must be contiguous.
  int64_t row_multiple() const { return is_gated() ? 1 : 0; }

  // a (N, F) from up (N, 2F), or (N, F) without a gate: an op that the product which computes up can end
  // with.
  ProductEnd forward(const Rows& a, const Rows& up) const;
  // d_up, like up in width and stride, from da; without a gate d_up may be da.
  ProductEnd backward(const Rows& d_up, const Tensor& da, const Rows& up) const;

 private:
  MlpKind kind_;
  float limit_;  // bound of gate and up, in a clamped unit
};

}  // namespace flatshard
