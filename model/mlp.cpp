#include "model/mlp.h"

#include <cmath>

#include "kernels/gelu.h"
#include "model/names.h"

namespace flatshard {

namespace {

Gate gate_of(MlpKind kind) { return kind == MlpKind::geglu ? Gate::gelu : Gate::silu; }

}  // namespace

Mlp::Mlp(ParamList& params, const ModelConfig& config, int64_t layer)
    : kind_(config.mlp), ffn_(config.ffn), fused_(param_names(config.family).fused_gate_up()) {
  const ParamNames& names = param_names(config.family);
  const std::string block = block_prefix(names, layer);
  const int64_t C = config.hidden, F = config.ffn;
  const bool bias = config.linear_bias, transposed = names.transposed_weights;
  std::vector<LinearSpec> in{{block + names.up, C, F, bias, transposed}};
  if (fused_)
    in = {{block + names.gate_up, C, 2 * F, bias, transposed}};
  else if (kind_ != MlpKind::gelu)
    in.insert(in.begin(), {block + names.gate, C, F, bias, transposed});
  in_ = Linear(params, config, in);
  const float init_std = 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
  out_ = Linear(params, config, {{block + names.down, F, C, bias, transposed, init_std}});
}

Mlp::Projected Mlp::allocate(Context& c, Arena& arena, int64_t N) const {
  const Shape wide{N, ffn_};
  Projected r;
  if (fused_) {
    r.packed = arena.alloc(c.dtype, {N, 2 * ffn_});
    r.gate = packed_columns(r.packed, 0, wide);
    r.up = packed_columns(r.packed, ffn_, wide);
    r.row_stride = 2 * ffn_;
    return r;
  }
  if (kind_ != MlpKind::gelu) r.gate = arena.alloc(c.dtype, wide);
  r.up = arena.alloc(c.dtype, wide);
  return r;
}

void Mlp::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, const Tensor& r) {
  hidden_ = c.saved.alloc(c.dtype, {x.shape[0], ffn_});
  projected_ = allocate(c, c.saved, x.shape[0]);
  const auto& [gate, up, packed, row_stride] = projected_;
  if (fused_)
    in_.forward(c, p, {packed}, x);
  else if (kind_ != MlpKind::gelu)
    in_.forward(c, p, {gate, up}, x);
  else
    in_.forward(c, p, {up}, x);
  if (kind_ == MlpKind::gelu)
    gelu_forward(c.stream, {.y = hidden_, .x = up});
  else
    swiglu_forward(
        c.stream,
        {.y = hidden_, .gate = gate, .up = up, .row_stride = row_stride, .function = gate_of(kind_)});
  out_.forward(c, p, {y}, hidden_, r);
}

void Mlp::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                   const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const Tensor d_hidden = c.scratch.alloc(c.dtype, {x.shape[0], ffn_});
  out_.backward(c, p, g, d_hidden, {dy}, hidden_);
  if (kind_ == MlpKind::gelu) {
    gelu_backward(c.stream, {.dx = d_hidden, .dy = d_hidden, .x = projected_.up});
    return in_.backward(c, p, g, dx, {d_hidden}, x);
  }
  const Projected d = allocate(c, c.scratch, x.shape[0]);
  swiglu_backward(c.stream, {.dgate = d.gate,
                             .dup = d.up,
                             .dy = d_hidden,
                             .gate = projected_.gate,
                             .up = projected_.up,
                             .row_stride = d.row_stride,
                             .function = gate_of(kind_)});
  if (fused_)
    in_.backward(c, p, g, dx, {d.packed}, x);
  else
    in_.backward(c, p, g, dx, {d.gate, d.up}, x);
}

}  // namespace flatshard
