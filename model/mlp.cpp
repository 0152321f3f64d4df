#include "model/mlp.h"

#include <cmath>

#include "kernels/gelu.h"
#include "model/names.h"

namespace flatshard {

namespace {

bool is_gated(MlpKind kind) { return kind == MlpKind::swiglu || kind == MlpKind::geglu; }
Gate gate_of(MlpKind kind) { return kind == MlpKind::geglu ? Gate::gelu : Gate::silu; }
GeluKind gelu_of(MlpKind kind) { return kind == MlpKind::quick_gelu ? GeluKind::quick : GeluKind::tanh; }

std::vector<LinearSpec> in_layers(const ModelConfig& config, int64_t layer) {
  const ParamNames& names = param_names(config.family);
  const std::string block = block_prefix(names, layer);
  const int64_t C = config.hidden, F = config.ffn;
  const bool bias = config.linear_bias, transposed = names.transposed_weights;
  if (names.fused_gate_up()) return {{block + names.gate_up, C, 2 * F, bias, transposed}};
  const LinearSpec up{block + names.up, C, F, bias, transposed};
  if (!is_gated(config.mlp)) return {up};
  return {{block + names.gate, C, F, bias, transposed}, up};
}

LinearSpec out_layer(const ModelConfig& config, int64_t layer) {
  const ParamNames& names = param_names(config.family);
  const float init_std = 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
  return {block_prefix(names, layer) + names.down,
          config.ffn,
          config.hidden,
          config.linear_bias,
          names.transposed_weights,
          init_std};
}

}  // namespace

Mlp::Mlp(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& in,
         const LinearSpec& out)
    : kind_(config.mlp), ffn_(out.in), in_(params, config, in), out_(params, config, {out}) {}

Mlp::Mlp(ParamList& params, const ModelConfig& config, int64_t layer)
    : Mlp(params, config, in_layers(config, layer), out_layer(config, layer)) {}

void Mlp::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, const Tensor& r) {
  const ArenaScope scope(c.scratch);
  const int64_t N = x.shape[0];
  hidden_ = allocate_hidden(c, c.recompute ? c.scratch : c.saved, N);
  projected_ = c.saved.alloc(c.dtype, {N, in_.width() + (is_gated(kind_) ? in_.spare_of_y(c, N) : 0)});
  in_.forward(c, p, projected_, x);
  activate(c);
  out_.forward(c, p, y, hidden_, r);
}

// Allocates hidden_. A gated activation writes packed columns, so it can leave spare columns free.
Tensor Mlp::allocate_hidden(Context& c, Arena& arena, int64_t rows) const {
  return arena.alloc(c.dtype, {rows, ffn_ + (is_gated(kind_) ? out_.spare_of_x(c, rows) : 0)});
}

void Mlp::activate(Context& c) const {
  if (!is_gated(kind_))
    return gelu_forward(c.stream, {.y = hidden_, .x = projected_, .kind = gelu_of(kind_)});
  const Shape each{projected_.shape[0], ffn_};
  swiglu_forward(c.stream, {.y = packed_columns(hidden_, 0, each),
                            .gate = packed_columns(projected_, 0, each),
                            .up = packed_columns(projected_, ffn_, each),
                            .row_stride = projected_.shape[1],
                            .y_stride = hidden_.shape[1],
                            .function = gate_of(kind_)});
}

void Mlp::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                   const Tensor& x, bool accumulate) {
  const ArenaScope scope(c.scratch);
  const Tensor d_hidden = c.scratch.alloc(c.dtype, {x.shape[0], ffn_});
  {
    const ArenaScope again(c.scratch);
    if (c.recompute) {
      hidden_ = allocate_hidden(c, c.scratch, x.shape[0]);
      activate(c);
      out_.restore_spare_columns(c, p, hidden_);
    }
    out_.backward(c, p, g, d_hidden, dy, hidden_);
  }
  if (!is_gated(kind_)) {
    gelu_backward(c.stream, {.dx = d_hidden, .dy = d_hidden, .x = projected_, .kind = gelu_of(kind_)});
    return in_.backward(c, p, g, dx, d_hidden, x, accumulate);
  }
  const Tensor d = c.scratch.alloc(c.dtype, projected_.shape);
  swiglu_backward(c.stream, {.dgate = packed_columns(d, 0, d_hidden.shape),
                             .dup = packed_columns(d, ffn_, d_hidden.shape),
                             .dy = d_hidden,
                             .gate = packed_columns(projected_, 0, d_hidden.shape),
                             .up = packed_columns(projected_, ffn_, d_hidden.shape),
                             .row_stride = projected_.shape[1],
                             .function = gate_of(kind_)});
  in_.backward(c, p, g, dx, d, x, accumulate);
}

}  // namespace flatshard
