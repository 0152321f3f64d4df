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
  std::vector<LinearSpec> in{{block + names.up, C, F, config.linear_bias, names.transposed_weights}};
  if (kind_ == MlpKind::swiglu) in.insert(in.begin(), {block + names.gate, C, F, config.linear_bias});
  in_ = Linear(params, config, in);
  const float init_std = 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
  out_ = Linear(params, config,
                {{block + names.down, F, C, config.linear_bias, names.transposed_weights, init_std}});
}

void Mlp::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const Shape wide{x.shape[0], ffn_};
  up_ = c.saved.alloc(c.dtype, wide);
  hidden_ = c.saved.alloc(c.dtype, wide);
  if (kind_ == MlpKind::swiglu) {
    gate_ = c.saved.alloc(c.dtype, wide);
    in_.forward(c, p, {gate_, up_}, x);
    swiglu_forward(c.stream, {.y = hidden_, .gate = gate_, .up = up_});
  } else {
    in_.forward(c, p, {up_}, x);
    gelu_forward(c.stream, {.y = hidden_, .x = up_});
  }
  out_.forward(c, p, {y}, hidden_, true);
}

void Mlp::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                   const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const Shape wide{x.shape[0], ffn_};
  const Tensor d_hidden = c.scratch.alloc(c.dtype, wide);
  out_.backward(c, p, g, d_hidden, {dy}, hidden_);
  if (kind_ == MlpKind::gelu_tanh) {
    gelu_backward(c.stream, {.dx = d_hidden, .dy = d_hidden, .x = up_});
    return in_.backward(c, p, g, dx, {d_hidden}, x);
  }
  const Tensor d_gate = c.scratch.alloc(c.dtype, wide), d_up = c.scratch.alloc(c.dtype, wide);
  swiglu_backward(c.stream, {.dgate = d_gate, .dup = d_up, .dy = d_hidden, .gate = gate_, .up = up_});
  in_.backward(c, p, g, dx, {d_gate, d_up}, x);
}

}  // namespace flatshard
