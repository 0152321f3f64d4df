#include "model/mlp.h"

#include <cmath>

#include "kernels/gelu.h"
#include "kernels/swiglu.h"
#include "model/names.h"

namespace flatshard {

Mlp::Mlp(ParamList& params, const ModelConfig& config, int64_t layer) : kind_(config.mlp), ffn_(config.ffn) {
  const ParamNames& names = param_names(config.family);
  const std::string block = block_prefix(names, layer);
  const int64_t C = config.hidden, F = config.ffn;
  if (kind_ == MlpKind::swiglu) gate_proj_ = Linear(params, block + names.gate, {C, F, config.linear_bias});
  up_proj_ = Linear(params, block + names.up, {C, F, config.linear_bias, names.transposed_weights});
  const float init_std = 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
  down_proj_ =
      Linear(params, block + names.down, {F, C, config.linear_bias, names.transposed_weights, init_std});
}

void Mlp::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const Shape wide{x.shape[0], ffn_};
  up_ = c.saved.alloc(c.dtype, wide);
  hidden_ = c.saved.alloc(c.dtype, wide);
  up_proj_.forward(c, p, up_, x);
  if (kind_ == MlpKind::swiglu) {
    gate_ = c.saved.alloc(c.dtype, wide);
    gate_proj_.forward(c, p, gate_, x);
    swiglu_forward(c.stream, {.y = hidden_, .gate = gate_, .up = up_});
  } else {
    gelu_forward(c.stream, {.y = hidden_, .x = up_});
  }
  down_proj_.forward(c, p, y, hidden_, true);
}

void Mlp::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                   const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const Shape wide{x.shape[0], ffn_};
  const Tensor d_hidden = c.scratch.alloc(c.dtype, wide);
  down_proj_.backward(c, p, g, d_hidden, dy, hidden_);
  if (kind_ == MlpKind::gelu_tanh) {
    gelu_backward(c.stream, {.dx = d_hidden, .dy = d_hidden, .x = up_});
    return up_proj_.backward(c, p, g, dx, d_hidden, x);
  }
  const Tensor d_gate = c.scratch.alloc(c.dtype, wide), d_up = c.scratch.alloc(c.dtype, wide);
  swiglu_backward(c.stream, {.dgate = d_gate, .dup = d_up, .dy = d_hidden, .gate = gate_, .up = up_});
  gate_proj_.backward(c, p, g, dx, d_gate, x);
  up_proj_.backward(c, p, g, dx, d_up, x, true);
}

}  // namespace flatshard
