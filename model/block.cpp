#include "model/block.h"

#include <cmath>
#include <utility>

#include "model/names.h"

namespace flatshard {

// The forward pass. Members are saved for the backward pass. With LayerCall::recomputes_ops h_, m_, a_ and
// normalized heads are in scratch instead, and the backward pass computes them again.

void Block::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  r_ = c.saved.alloc(c.dtype, x.shape);  // (N, C)
  attention_.forward(c, p, r_, x);       // 1 to 5
  mlp_.forward(c, p, y, r_);             // 6 to 9
}

void AttentionHalf::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const int64_t N = x.shape[0], D = head_dim_;
  // Rows.
  h_ = norm_.forward(c, p, x, w_qkv_);     // 1  (N, C)
  qkv_ = w_qkv_.output(c, c.saved, N, D);  // 2  (N, (Hq + 2 Hkv) D)
  w_qkv_.forward(c, p, qkv_, h_);
  heads_ = qk_.forward(c, p, qkv_);  // 3  q (N, Hq, D), k and v (N, Hkv, D)
  // Attention.
  o_ = w_out_.input(c, c.saved, N, D);  // 4  (N, Hq D)
  attention_.forward(c, o_, heads_);
  // Rows.
  const Tensor out = sum_.output(c, y);  // 5  (N, C)
  w_out_.forward(c, p, out, o_, sum_.addend(x));
  sum_.forward(c, p, y, x);
}

void MlpHalf::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const ArenaScope scope(c.scratch);
  m_ = norm_.forward(c, p, x, mlp_.reader());  // 6  (N, C)
  const Tensor down = sum_.output(c, y);       //    (N, C)
  mlp_.forward(c, p, down, m_, sum_.addend(x));
  sum_.forward(c, p, y, x);  // 9
}

void Mlp::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Rows& x, const Tensor& r) {
  const ArenaScope scope(c.scratch);
  const int64_t N = x.count(), multiple = activation_.row_multiple();
  up_ = w_up_.output(c, c.saved, N, multiple);  // 7  (N, 2F): gate and up, or (N, F)
  w_up_.forward(c, p, up_, x);
  a_ = w_down_.input(c, c.recomputes_ops ? c.scratch : c.saved, N, multiple);  // 8  (N, F)
  activation_.forward(c, a_, up_);
  w_down_.forward(c, p, y, a_, r);  // 9  (N, C)
}

// The backward pass, from the last step to the first. dx is the gradient of y on entry, of x on return.

void Block::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& x) {
  const bool input_gradient = std::exchange(c.input_gradient, true);  // applies to the attention half
  mlp_.backward(c, p, g, dx, r_);
  c.input_gradient = input_gradient;
  attention_.backward(c, p, g, dx, x);
}

void MlpHalf::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                       const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const Tensor d_down = sum_.backward(c, p, g, dx);        // 9  (N, C)
  const Tensor dm = norm_.gradient(c, g, dx);              //    (N, C); without a norm dx
  const Rows m = norm_.again(c, p, x, m_, mlp_.reader());  //    (N, C)
  mlp_.backward(c, p, g, dm, d_down, m, !norm_.exists());
  norm_.backward(c, p, g, dx, dm, x);  // 6
}

void Mlp::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                   const Rows& x, bool accumulate) {
  const ArenaScope scope(c.scratch);
  const int64_t N = x.count(), multiple = activation_.row_multiple();
  const Tensor da = c.scratch.alloc(c.dtype, {N, a_.width});  // 9  (N, F)
  {
    const ArenaScope again(c.scratch);
    if (c.recomputes_ops) {
      a_ = w_down_.input(c, c.scratch, N, multiple);
      activation_.forward(c, a_, up_);
      w_down_.restore(c, p, a_);
    }
    w_down_.backward(c, p, g, da, dy, a_);
  }
  const Rows d_up = activation_.is_gated() ? w_up_.output(c, c.scratch, N) : da;  // 8  like up
  activation_.backward(c, d_up, da, up_);
  w_up_.backward(c, p, g, dx, d_up, x, accumulate);  // 7
}

void AttentionHalf::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                             const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const int64_t N = x.shape[0], D = head_dim_;
  const Tensor d_out = sum_.backward(c, p, g, dx);  // 5  (N, C)
  const Tensor dh = norm_.gradient(c, g, dx);       //    (N, C); without a norm dx
  const Rows h = norm_.again(c, p, x, h_, w_qkv_);  //    (N, C)
  {
    const ArenaScope of_heads(c.scratch);
    // Rows.
    const Tensor d_o = c.scratch.alloc(c.dtype, {N, o_.width});  // 5  (N, Hq D)
    w_out_.backward(c, p, g, d_o, d_out, o_);
    // Attention.
    const Rows dqkv = w_qkv_.output(c, c.scratch, N, D);  // 4  (N, (Hq + 2 Hkv) D)
    const QkvHeads heads = qk_.again(c, p, qkv_, heads_);
    attention_.backward(c, qk_.in(dqkv), d_o, heads, o_);
    // Rows.
    qk_.backward(c, p, g, dqkv, qkv_);                       // 3
    w_qkv_.backward(c, p, g, dh, dqkv, h, !norm_.exists());  // 2
  }
  norm_.backward(c, p, g, dx, dh, x);  // 1
}

namespace {

std::string prefix(const ModelConfig& config, int64_t layer) {
  return block_prefix(param_names(config.family), layer);
}

Norm norm_of_block(ParamList& params, const ModelConfig& config, int64_t layer, const std::string& name) {
  return name.empty() ? Norm()
                      : Norm(params, config, prefix(config, layer) + name, config.norm, config.hidden);
}

// A projection whose output is added to the residual stream.
LinearSpec to_stream(const ModelConfig& config, int64_t layer, const std::string& name, int64_t in) {
  const float init_std = 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
  return {prefix(config, layer) + name,
          in,
          config.hidden,
          config.linear_bias,
          param_names(config.family).transposed_weights,
          init_std};
}

std::vector<LinearSpec> qkv_layers(const ModelConfig& config, int64_t layer) {
  const ParamNames& names = param_names(config.family);
  const std::string block = prefix(config, layer);
  const int64_t C = config.hidden, q_size = config.heads * config.head_dim,
                kv_size = config.kv_heads * config.head_dim;
  const bool bias = *config.qkv_bias;
  if (names.fused_qkv())
    return {{block + names.qkv, C, q_size + 2 * kv_size, bias, names.transposed_weights}};
  return {{block + names.q, C, q_size, bias},
          {block + names.k, C, kv_size, bias},
          {block + names.v, C, kv_size, bias}};
}

std::vector<LinearSpec> up_layers(const ModelConfig& config, int64_t layer) {
  const ParamNames& names = param_names(config.family);
  const std::string block = prefix(config, layer);
  const int64_t C = config.hidden, F = config.ffn;
  const bool bias = config.linear_bias, transposed = names.transposed_weights;
  if (names.fused_gate_up()) return {{block + names.gate_up, C, 2 * F, bias, transposed}};
  const LinearSpec up{block + names.up, C, F, bias, transposed};
  if (!Activation(config.mlp).is_gated()) return {up};
  return {{block + names.gate, C, F, bias, transposed}, up};
}

}  // namespace

AttentionHalf::AttentionHalf(ParamList& params, const ModelConfig& config, int64_t layer,
                             const Tensor& rope_table)
    : TextLayer(config),
      head_dim_(config.head_dim),
      norm_(norm_of_block(params, config, layer, param_names(config.family).attention_norm)),
      sum_(norm_of_block(params, config, layer, param_names(config.family).attention_out_norm),
           static_cast<float>(config.residual_multiplier)),
      w_qkv_(params, config, qkv_layers(config, layer)),
      qk_(params, config, layer, rope_table),
      w_out_(params, config,
             {to_stream(config, layer, param_names(config.family).attention_out,
                        config.heads * config.head_dim)}),
      attention_(config, layer) {}

Mlp::Mlp(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& up,
         const LinearSpec& down)
    : activation_(config.mlp), w_up_(params, config, up), w_down_(params, config, {down}) {}

Mlp::Mlp(ParamList& params, const ModelConfig& config, int64_t layer)
    : Mlp(params, config, up_layers(config, layer),
          to_stream(config, layer, param_names(config.family).down, config.ffn)) {}

MlpHalf::MlpHalf(ParamList& params, const ModelConfig& config, int64_t layer)
    : TextLayer(config),
      norm_(norm_of_block(params, config, layer, param_names(config.family).mlp_norm)),
      sum_(norm_of_block(params, config, layer, param_names(config.family).mlp_out_norm),
           static_cast<float>(config.residual_multiplier)),
      mlp_(params, config, layer) {}

Block::Block(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table)
    : TextLayer(config), attention_(params, config, layer, rope_table), mlp_(params, config, layer) {}

}  // namespace flatshard
