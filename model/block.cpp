#include "model/block.h"

#include <utility>

#include "model/names.h"
#include "model/tiles.h"

namespace flatshard {

// The forward pass. Members are saved for the backward pass. With LayerCall::recomputes_ops h_, m_, a_ and
// normalized heads are in scratch instead, and the backward pass computes them again. With tiles only qkv_,
// normalized heads and o_ are saved; what else a member holds is of the last tile.

void Block::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const bool wants_output = std::exchange(c.wants_output, true);  // applies to the MLP half
  r_ = c.saved.alloc(c.dtype, x.shape);                           // (N, C)
  attention_.forward(c, p, r_, x);                                // 1 to 5
  c.wants_output = wants_output;
  mlp_.forward(c, p, y, r_);  // 6 to 9
}

void AttentionHalf::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const int64_t N = x.shape[0], D = head_dim_;
  // Rows.
  qkv_ = w_qkv_.output(c, c.saved, N, D);
  for_each_tile(c, N, [&](LayerCall& t, Tile tile) {
    h_ = norm_.forward(t, p, tile.of(x), w_qkv_);  // 1  (N, C)
    const Rows qkv = tile.of(qkv_);
    // 2  (N, (Hq + 2 Hkv) D), and 3 where no norm comes first
    w_qkv_.forward(t, p, qkv, h_, {}, qk_.end_of_product(t, qkv));
  });
  heads_ = qk_.forward(c, p, qkv_);  // 3  q (N, Hq, D), k and v (N, Hkv, D)
  // Attention.
  if (!c.repeats || !c.kept) {
    o_ = w_out_.input(c, saved_attention(c), N, D);  // 4  (N, Hq D)
    attention_.forward(c, p, o_, heads_);
  }
  // Rows.
  if (has_tiles(c) && !c.wants_output) return;
  for_each_tile(c, N, [&](LayerCall& t, Tile tile) { add_rows(t, p, tile.of(y), tile.of(x), tile.of(o_)); });
}

// 5  (N, C). A pass that is repeated needs y only for the norm after the product.
void AttentionHalf::add_rows(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x,
                             const Rows& o) {
  if (!c.wants_output && !sum_.reads_output()) return w_out_.prepare(c, p, o);
  const Tensor out = sum_.output(c, y);
  w_out_.forward(c, p, out, o, sum_.addend(x));
  sum_.forward(c, p, y, x);
}

void MlpHalf::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  if (has_tiles(c) && !c.wants_output) return;
  for_each_tile(c, x.shape[0], [&](LayerCall& t, Tile tile) { add_rows(t, p, tile.of(y), tile.of(x)); });
}

void MlpHalf::add_rows(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const ArenaScope scope(c.scratch);
  m_ = norm_.forward(c, p, x, mlp_.reader());  // 6  (N, C)
  if (!c.wants_output && !sum_.reads_output()) return mlp_.forward(c, p, {}, m_, {});
  const Tensor down = sum_.output(c, y);  //    (N, C)
  mlp_.forward(c, p, down, m_, sum_.addend(x));
  sum_.forward(c, p, y, x);  // 9
}

void Mlp::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Rows& x, const Tensor& r) {
  const ArenaScope scope(c.scratch);
  const int64_t N = x.count(), multiple = activation_.row_multiple();
  up_ = w_up_.output(c, c.saved, N, multiple);  // 7  (N, 2F): gate and up, or (N, F)
  a_ = w_down_.input(c, c.recomputes_ops ? c.scratch : c.saved, N, multiple);  // 8  (N, F)
  w_up_.forward(c, p, up_, x, {}, activation_.forward(a_, up_));
  if (y.empty()) return w_down_.prepare(c, p, a_);
  w_down_.forward(c, p, y, a_, r);  // 9  (N, C)
}

void BlockMlp::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Rows& x, const Tensor& r) {
  std::visit([&](auto& mlp) { mlp.forward(c, p, y, x, r); }, mlp_);
}

void BlockMlp::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                        const Tensor& dy, const Rows& x, bool accumulate) {
  std::visit([&](auto& mlp) { mlp.backward(c, p, g, dx, dy, x, accumulate); }, mlp_);
}

Linear& BlockMlp::reader() {
  return std::visit([](auto& mlp) -> Linear& { return mlp.reader(); }, mlp_);
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
  for_each_tile(c, x.shape[0], [&](LayerCall& t, Tile tile) {
    if (has_tiles(t)) compute_again(t, p, tile.of(x));
    rows_backward(t, p, g, tile.of(dx), tile.of(x));
  });
}

void MlpHalf::compute_again(LayerCall& c, const ParamView& p, const Tensor& x) {
  const ArenaScope scope(c.scratch);
  c.wants_output = false;
  add_rows(c, p, sum_.reads_output() ? c.scratch.alloc(c.dtype, x.shape) : Tensor{}, x);
}

void MlpHalf::rows_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
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
  if (c.recomputes_ops) {
    const ArenaScope again(c.scratch);
    a_ = w_down_.input(c, c.scratch, N, multiple);
    run(c.stream, activation_.forward(a_, up_));
    w_down_.restore(c, p, a_);
    w_down_.backward(c, p, g, da, dy, a_);
  }
  const Rows d_up = activation_.is_gated() ? w_up_.output(c, c.scratch, N) : da;  // 8  like up
  const ProductEnd end = activation_.backward(d_up, da, up_);
  // Where a_ is computed again, d_up takes its memory, so that the product cannot end with it.
  c.recomputes_ops ? run(c.stream, end) : w_down_.backward(c, p, g, da, dy, a_, false, end);
  w_up_.backward(c, p, g, dx, d_up, x, accumulate);  // 7
}

void AttentionHalf::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                             const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const int64_t N = x.shape[0], D = head_dim_;
  // Rows.
  const Tensor d_o = c.scratch.alloc(c.dtype, {N, o_.width});  // 5  (N, Hq D)
  for_each_tile(c, N, [&](LayerCall& t, Tile tile) {
    const ArenaScope of_sum(t.scratch);
    if (has_tiles(t)) add_again(t, p, tile.of(x), tile.of(o_));
    const Tensor d_out = sum_.backward(t, p, g, tile.of(dx));  // 5  (N, C)
    w_out_.backward(t, p, g, tile.of(d_o), d_out, tile.of(o_));
  });
  // Attention.
  const Rows dqkv = w_qkv_.output(c, c.scratch, N, D);  // 4  (N, (Hq + 2 Hkv) D)
  {
    const ArenaScope of_heads(c.scratch);
    attention_.backward(c, p, g, qk_.in(dqkv), d_o, qk_.again(c, p, qkv_, heads_), o_);
  }
  // Rows.
  qk_.backward(c, p, g, dqkv, qkv_);  // 3
  for_each_tile(c, N, [&](LayerCall& t, Tile tile) {
    const Rows h = input_again(t, p, tile.of(x));                     //    (N, C)
    const Tensor dh = norm_.gradient(t, g, tile.of(dx));              //    (N, C); without a norm dx
    w_qkv_.backward(t, p, g, dh, tile.of(dqkv), h, !norm_.exists());  // 2
    norm_.backward(t, p, g, tile.of(dx), dh, tile.of(x));             // 1
  });
}

// What the product of a tile's o and the norm after it leave for the backward pass.
void AttentionHalf::add_again(LayerCall& c, const ParamView& p, const Tensor& x, const Rows& o) {
  const ArenaScope scope(c.scratch);
  c.wants_output = false;
  add_rows(c, p, sum_.reads_output() ? c.scratch.alloc(c.dtype, x.shape) : Tensor{}, x, o);
}

// h of a tile, or of all rows.
Rows AttentionHalf::input_again(LayerCall& c, const ParamView& p, const Tensor& x) {
  if (!has_tiles(c)) return norm_.again(c, p, x, h_, w_qkv_);
  const Rows h = norm_.forward(c, p, x, w_qkv_);
  w_qkv_.prepare(c, p, h);
  return h;
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
  const float init_std = init_std_to_stream(config);
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
      attention_(params, config, layer) {}

Mlp::Mlp(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& up,
         const LinearSpec& down)
    : activation_(config.mlp), w_up_(params, config, up), w_down_(params, config, {down}) {}

Mlp::Mlp(ParamList& params, const ModelConfig& config, int64_t layer)
    : Mlp(params, config, up_layers(config, layer),
          to_stream(config, layer, param_names(config.family).down, config.ffn)) {}

BlockMlp::BlockMlp(ParamList& params, const ModelConfig& config, int64_t layer)
    : mlp_(config.has_experts(layer) ? std::variant<Mlp, ExpertMlp>(ExpertMlp(params, config, layer))
                                     : Mlp(params, config, layer)) {}

MlpHalf::MlpHalf(ParamList& params, const ModelConfig& config, int64_t layer)
    : TextLayer(config),
      norm_(norm_of_block(params, config, layer, param_names(config.family).mlp_norm)),
      sum_(norm_of_block(params, config, layer, param_names(config.family).mlp_out_norm),
           static_cast<float>(config.residual_multiplier)),
      mlp_(params, config, layer) {}

Block::Block(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table)
    : TextLayer(config), attention_(params, config, layer, rope_table), mlp_(params, config, layer) {}

}  // namespace flatshard
