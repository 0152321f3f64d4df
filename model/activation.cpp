#include "model/activation.h"

#include "kernels/clamped_glu.h"
#include "kernels/gelu.h"
#include "kernels/swiglu.h"

namespace flatshard {
namespace {

Gate gate_of(MlpKind kind) { return kind == MlpKind::geglu ? Gate::gelu : Gate::silu; }
GeluKind gelu_of(MlpKind kind) { return kind == MlpKind::quick_gelu ? GeluKind::quick : GeluKind::tanh; }

}  // namespace

ProductEnd Activation::forward(const Rows& a, const Rows& up) const {
  const int64_t F = a.width;
  if (kind_ == MlpKind::clamped_glu)
    return ClampedGluForward{.y = a.values(), .x = up.values(), .limit = limit_};
  if (!is_gated()) return GeluForward{.y = a.values(), .x = up.values(), .kind = gelu_of(kind_)};
  return SwigluForward{.y = a.values(),
                       .gate = up.columns(0, F).values(),
                       .up = up.columns(F, F).values(),
                       .row_stride = up.stride(),
                       .y_stride = a.stride(),
                       .function = gate_of(kind_)};
}

ProductEnd Activation::backward(const Rows& d_up, const Tensor& da, const Rows& up) const {
  const int64_t F = da.shape[1];
  if (kind_ == MlpKind::clamped_glu)
    return ClampedGluBackward{.dx = d_up.values(), .dy = da, .x = up.values(), .limit = limit_};
  if (!is_gated())
    return GeluBackward{.dx = d_up.values(), .dy = da, .x = up.values(), .kind = gelu_of(kind_)};
  return SwigluBackward{.dgate = d_up.columns(0, F).values(),
                        .dup = d_up.columns(F, F).values(),
                        .dy = da,
                        .gate = up.columns(0, F).values(),
                        .up = up.columns(F, F).values(),
                        .row_stride = up.stride(),
                        .function = gate_of(kind_)};
}

}  // namespace flatshard
