#include "model/activation.h"

#include "kernels/gelu.h"
#include "kernels/swiglu.h"

namespace flatshard {
namespace {

Gate gate_of(MlpKind kind) { return kind == MlpKind::geglu ? Gate::gelu : Gate::silu; }
GeluKind gelu_of(MlpKind kind) { return kind == MlpKind::quick_gelu ? GeluKind::quick : GeluKind::tanh; }

}  // namespace

void Activation::forward(LayerCall& c, const Rows& a, const Rows& up) const {
  const int64_t F = a.width;
  if (!is_gated()) return gelu_forward(c.stream, {.y = a.values(), .x = up.values(), .kind = gelu_of(kind_)});
  swiglu_forward(c.stream, {.y = a.values(),
                            .gate = up.columns(0, F).values(),
                            .up = up.columns(F, F).values(),
                            .row_stride = up.stride(),
                            .y_stride = a.stride(),
                            .function = gate_of(kind_)});
}

void Activation::backward(LayerCall& c, const Rows& d_up, const Tensor& da, const Rows& up) const {
  const int64_t F = da.shape[1];
  if (!is_gated())
    return gelu_backward(c.stream, {.dx = d_up.values(), .dy = da, .x = up.values(), .kind = gelu_of(kind_)});
  swiglu_backward(c.stream, {.dgate = d_up.columns(0, F).values(),
                             .dup = d_up.columns(F, F).values(),
                             .dy = da,
                             .gate = up.columns(0, F).values(),
                             .up = up.columns(F, F).values(),
                             .row_stride = up.stride(),
                             .function = gate_of(kind_)});
}

}  // namespace flatshard
