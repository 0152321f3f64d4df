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
  if (kind_ == MlpKind::swiglu) gate_ = Linear(params, block + names.gate, {C, F, config.other_bias});
  up_ = Linear(params, block + names.up, {C, F, config.other_bias, names.linear_in_out});
  const float deviation = 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
  down_ = Linear(params, block + names.down, {F, C, config.other_bias, names.linear_in_out, deviation});
}

void Mlp::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const Shape wide{x.shape[0], ffn_};
  raised_ = c.saved.alloc(c.dtype, wide);
  active_ = c.saved.alloc(c.dtype, wide);
  up_.forward(c, p, raised_, x);
  if (kind_ == MlpKind::swiglu) {
    gated_ = c.saved.alloc(c.dtype, wide);
    gate_.forward(c, p, gated_, x);
    swiglu_forward(c.stream, {.y = active_, .gate = gated_, .up = raised_});
  } else {
    gelu_forward(c.stream, {.y = active_, .x = raised_});
  }
  down_.forward(c, p, y, active_, true);
}

void Mlp::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                   const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const Shape wide{x.shape[0], ffn_};
  const Tensor d_active = c.scratch.alloc(c.dtype, wide);
  down_.backward(c, p, g, d_active, dy, active_);
  if (kind_ == MlpKind::gelu_tanh) {
    gelu_backward(c.stream, {.dx = d_active, .dy = d_active, .x = raised_});
    return up_.backward(c, p, g, dx, d_active, x);
  }
  const Tensor d_gate = c.scratch.alloc(c.dtype, wide), d_up = c.scratch.alloc(c.dtype, wide);
  swiglu_backward(c.stream, {.dgate = d_gate, .dup = d_up, .dy = d_active, .gate = gated_, .up = raised_});
  gate_.backward(c, p, g, dx, d_gate, x);
  up_.backward(c, p, g, dx, d_up, x, true);
}

}  // namespace flatshard
