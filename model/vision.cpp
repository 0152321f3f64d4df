#include "model/vision.h"

#include <cmath>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gather_rows.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "model/names.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

// A config without the features of a text model: no positions, no window, no cap.
ModelConfig plain_config(const ModelConfig& config, const std::string& names) {
  ModelConfig c;
  c.family = names;
  c.norm_rounds = config.norm_rounds;
  c.positions = PositionKind::learned;  // blocks do not rotate
  c.tied = c.qk_norm = false;
  c.window = c.full_attention_every = c.no_rope_every = 0;
  c.attention_softcap = c.logit_softcap = c.attention_multiplier = c.window_rope_theta = 0;
  c.partial_rotary_factor = 1;
  c.causal = false;
  c.adapters = config.adapters;
  c.quantized = config.quantized;
  c.fp32_norms = config.fp32_norms;
  return c;
}

Tensor gathered(LayerCall& c, Arena& arena, const Tensor& x, const Tensor& index) {
  const Tensor y = arena.alloc(x.dtype, {index.size(), x.shape[1]});
  gather_rows(c.stream, {.y = y, .x = x, .index = index});
  return y;
}

}  // namespace

ModelConfig tower_config(const ModelConfig& config) {
  const VisionConfig& v = *config.vision;
  ModelConfig c = plain_config(config, v.tower.names);
  c.layers = v.layers;
  c.hidden = v.hidden;
  c.heads = c.kv_heads = v.heads;
  c.head_dim = c.query_scalar = v.hidden / v.heads;
  c.ffn = v.ffn;
  c.norm = v.tower.norm;
  c.norm_eps = v.norm_eps;
  c.mlp = v.tower.mlp;
  if (v.tower.rotary) c.rope_sections = {c.head_dim / 4, c.head_dim / 4};
  c.qkv_bias = c.linear_bias = true;
  return c;
}

ModelConfig perceiver_config(const ModelConfig& config) {
  ModelConfig c = plain_config(config, "perceiver");
  c.layers = config.vision->perceiver.layers;
  c.hidden = config.hidden;
  c.ffn = 4 * config.hidden;
  c.norm_eps = config.vision->perceiver.norm_eps;
  return c;
}

PatchEmbedding::PatchEmbedding(ParamList& params, const ModelConfig& config)
    : hidden_(config.vision->hidden),
      width_(config.vision->patch_width()),
      rotary_(config.vision->tower.rotary) {
  const ParamNames& names = param_names(config.vision->tower.names);
  const int64_t size = config.vision->patch_size;
  w_ = params.add({.name = names.embedding + ".weight",
                   .shape = rotary_ ? Shape{hidden_, 3, config.vision->repeats, size, size}
                                    : Shape{hidden_, 3, size, size},
                   .init = Init::normal(0.02f),
                   .role = ParamRole::embedding});
  if (rotary_) return;
  b_ = params.add({.name = names.embedding + ".bias",
                   .shape = {hidden_},
                   .init = Init::constant(0),
                   .role = ParamRole::bias});
  positions_ = params.add({.name = names.positions + ".weight",
                           .shape = {config.vision->positions(), hidden_},
                           .init = Init::normal(0.02f),
                           .role = ParamRole::embedding});
}

Tensor PatchEmbedding::patches_of(LayerCall& c) const {
  Tensor patches = c.images.patches;
  if (patches.dtype != c.dtype) {
    patches = c.scratch.alloc(c.dtype, c.images.patches.shape);
    cast(c.stream, {.y = patches, .x = c.images.patches});
  }
  const Tensor& order = c.images.moves.windowed_patches;
  return order.empty() ? patches : gathered(c, c.scratch, patches, order);
}

void PatchEmbedding::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor&) {
  const ArenaScope scope(c.scratch);
  gemm(c.stream, c.scratch,
       {.c = y,
        .a = patches_of(c),
        .b = as_matrix(p[w_]),
        .bias = rotary_ ? Tensor{} : p[b_],
        .addend = rotary_ ? Tensor{} : gathered(c, c.scratch, p[positions_], c.images.positions),
        .transpose_b = true,
        .tf32 = c.tf32});
}

void PatchEmbedding::backward(LayerCall& c, const ParamView&, const GradView& g, const Tensor& dx,
                              const Tensor&) {
  const ArenaScope scope(c.scratch);
  if (const Tensor dw = as_matrix(g[w_]); !dw.empty())
    gemm(c.stream, c.scratch,
         {.c = dw,
          .a = dx,
          .b = patches_of(c),
          .transpose_a = true,
          .accumulate = g.accumulates(w_),
          .tf32 = c.tf32});
  if (rotary_) return;
  if (!g[b_].empty())
    bias_backward(c.stream, c.scratch, {.db = g[b_], .dy = dx, .accumulate = g.accumulates(b_)});
  if (g[positions_].empty()) return;
  if (!g.accumulates(positions_)) zero(c.stream, g[positions_]);
  embedding_backward(c.stream, c.scratch, {.dw = g[positions_], .dy = dx, .tokens = c.images.positions});
}

TowerBlock::TowerBlock(ParamList& params, const ModelConfig& config, int64_t block, const Tensor& rope_table)
    : block_(params, tower_config(config), block, rope_table),
      hidden_(config.vision->hidden),
      windowed_(config.vision->has_windows(block)) {}

LayerCall TowerBlock::of_tower(const LayerCall& c) const {
  const ConnectorMoves& moves = c.images.moves;
  LayerCall tower = c;
  tower.positions = moves.windowed_positions.empty() ? c.images.positions : moves.windowed_positions;
  tower.boundaries = windowed_ ? moves.windows : c.images.frames;
  tower.cache = nullptr;
  tower.texts = {};
  return tower;
}

void TowerBlock::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  LayerCall tower = of_tower(c);
  block_.forward(tower, p, y, x);
}

void TowerBlock::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                          const Tensor& x) {
  LayerCall tower = of_tower(c);
  block_.backward(tower, p, g, dx, x);
}

PixelShuffle::PixelShuffle(ParamList& params, const ModelConfig& config)
    : square_(config.vision->scale * config.vision->scale),
      hidden_(config.hidden),
      norm_(params, tower_config(config), param_names("siglip").final_norm, NormKind::layer,
            config.vision->hidden),
      projection_(params, config,
                  {{str(kModalityProjection, ".proj"), config.vision->hidden * square_, config.hidden}}) {}

void PixelShuffle::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const int64_t rows = y.shape[0], width = x.shape[1];
  squares_ = c.saved.alloc(c.dtype, {rows, square_ * width});
  const ArenaScope scope(c.scratch);
  const Tensor h = c.scratch.alloc(c.dtype, x.shape);
  norm_.forward(c, p, h, x);
  gather_rows(c.stream, {.y = squares_.view(x.shape), .x = h, .index = c.images.moves.squares});
  projection_.forward(c, p, y, squares_);
}

void PixelShuffle::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                            const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const Tensor d_squares = c.scratch.alloc(c.dtype, squares_.shape), dh = c.scratch.alloc(c.dtype, x.shape);
  projection_.backward(c, p, g, d_squares, dx, squares_);
  scatter_rows(c.stream, {.y = dh, .x = d_squares.view(x.shape), .index = c.images.moves.squares});
  norm_.backward(c, p, g, gradient_of_input(dx, x), dh, x, false);
}

PatchMerger::PatchMerger(ParamList& params, const ModelConfig& config)
    : square_(config.vision->square()),
      hidden_(config.hidden),
      norm_(params, tower_config(config), param_names(config.vision->tower.names).final_norm,
            config.vision->tower.norm, config.vision->hidden) {
  const std::string path = str(kMerger, '.');
  const int64_t width = config.vision->hidden * square_;
  in_ = Linear(params, config, {{path + "0", width, width, true}});
  out_ = Linear(params, config, {{path + "2", width, hidden_, true}});
}

void PatchMerger::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const Tensor& order = c.images.moves.windowed_rows;
  squares_ = c.saved.alloc(c.dtype, {y.shape[0], square_ * x.shape[1]});
  projected_ = c.saved.alloc(c.dtype, squares_.shape);
  activated_ = c.saved.alloc(c.dtype, squares_.shape);
  norm_.forward(c, p, squares_.view(x.shape), x);
  in_.forward(c, p, projected_, squares_);
  gelu_forward(c.stream, {.y = activated_, .x = projected_, .kind = GeluKind::erf});
  if (order.empty()) return out_.forward(c, p, y, activated_);
  const ArenaScope scope(c.scratch);
  const Tensor moved = c.scratch.alloc(c.dtype, y.shape);
  out_.forward(c, p, moved, activated_);
  scatter_rows(c.stream, {.y = y, .x = moved, .index = order});
}

void PatchMerger::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                           const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const Tensor& order = c.images.moves.windowed_rows;
  const Tensor dy = order.empty() ? dx : gathered(c, c.scratch, dx, order);
  const Tensor d_activated = c.scratch.alloc(c.dtype, activated_.shape),
               d_squares = c.scratch.alloc(c.dtype, squares_.shape);
  out_.backward(c, p, g, d_activated, dy, activated_);
  gelu_backward(c.stream, {.dx = d_activated, .dy = d_activated, .x = projected_, .kind = GeluKind::erf});
  in_.backward(c, p, g, d_squares, d_activated, squares_);
  norm_.backward(c, p, g, gradient_of_input(dx, x), d_squares.view(x.shape), x, false);
}

ModalityProjection::ModalityProjection(ParamList& params, const ModelConfig& config)
    : hidden_(config.hidden),
      latent_count_(config.vision->perceiver.latents),
      norm_(params, tower_config(config), param_names("siglip").final_norm, NormKind::layer,
            config.vision->hidden),
      mlp_(params, config,
           {{str(kModalityProjection, ".gate_proj"), config.vision->hidden, config.ffn},
            {str(kModalityProjection, ".up_proj"), config.vision->hidden, config.ffn}},
           {str(kModalityProjection, ".down_proj"), config.ffn, config.hidden}) {
  latents_ = params.add({.name = param_names("perceiver").embedding,
                         .shape = {latent_count_, hidden_},
                         .init = Init::constant(1),
                         .role = ParamRole::embedding});
}

void ModalityProjection::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const int64_t P = x.shape[0];
  normalized_ = mlp_.reader().input(c, c.saved, P);
  norm_.forward(c, p, normalized_, x);
  const ArenaScope scope(c.scratch);
  const Tensor patches = c.scratch.alloc(c.dtype, {P, hidden_});
  mlp_.forward(c, p, patches, normalized_, {});
  scatter_rows(c.stream, {.y = y, .x = patches, .index = c.images.moves.patches});
  scatter_rows(c.stream, {.y = y,
                          .x = gathered(c, c.scratch, p[latents_], c.images.moves.latent_of_row),
                          .index = c.images.moves.latents});
}

void ModalityProjection::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                                  const Tensor& x) {
  const ArenaScope scope(c.scratch);
  if (!g[latents_].empty()) {
    if (!g.accumulates(latents_)) zero(c.stream, g[latents_]);
    embedding_backward(c.stream, c.scratch,
                       {.dw = g[latents_],
                        .dy = gathered(c, c.scratch, dx, c.images.moves.latents),
                        .tokens = c.images.moves.latent_of_row});
  }
  const Tensor d_patches = gathered(c, c.scratch, dx, c.images.moves.patches);
  const Tensor dh = c.scratch.alloc(c.dtype, x.shape);
  mlp_.backward(c, p, g, dh, d_patches, normalized_, false);
  norm_.backward(c, p, g, gradient_of_input(dx, x), dh, x, false);
}

PerceiverLayer::PerceiverLayer(ParamList& params, const ModelConfig& config, int64_t index)
    : is_last_(index + 1 == config.vision->perceiver.layers),
      hidden_(config.hidden),
      latent_count_(config.vision->perceiver.latents),
      query_heads_(config.vision->perceiver.heads),
      key_heads_(config.vision->perceiver.kv_heads),
      head_dim_(config.vision->perceiver.head_dim),
      mlp_(params, perceiver_config(config), index) {
  const ModelConfig own = perceiver_config(config);
  const ParamNames& names = param_names(own.family);
  const std::string path = block_prefix(names, index);
  const auto norm = [&](const std::string& name) { return Norm(params, own, name, NormKind::rms, hidden_); };
  latents_norm_ = norm(path + names.attention_norm);
  patches_norm_ = norm(path + "input_context_norm");
  mlp_norm_ = norm(path + names.mlp_norm);
  if (is_last_) last_norm_ = norm(names.final_norm);
  const int64_t q_size = query_heads_ * head_dim_, kv_size = key_heads_ * head_dim_;
  q_ = Linear(params, own, {{path + names.q, hidden_, q_size}});
  kv_ = Linear(params, own, {{path + names.k, hidden_, kv_size}, {path + names.v, hidden_, kv_size}});
  out_ = Linear(params, own, {{path + names.attention_out, q_size, hidden_}});
}

AttentionMask PerceiverLayer::mask(const LayerCall& c) const {
  return {.cu_seqlens = c.images.moves.query_ends, .cu_seqlens_kv = c.images.moves.key_ends, .causal = false};
}

void PerceiverLayer::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  const ConnectorMoves& moves = c.images.moves;
  const int64_t L = moves.latents.size();
  queries_in_ = c.saved.alloc(c.dtype, {L, hidden_});
  keys_in_ = c.saved.alloc(c.dtype, x.shape);
  q_rows_ = c.saved.alloc(c.dtype, {L, query_heads_ * head_dim_});
  kv_rows_ = c.saved.alloc(c.dtype, {x.shape[0], 2 * key_heads_ * head_dim_});
  o_ = c.saved.alloc(c.dtype, q_rows_.shape);
  lse_ = c.saved.alloc(DType::f32, {query_heads_, L});
  attended_ = c.saved.alloc(c.dtype, {L, hidden_});
  mlp_in_ = c.saved.alloc(c.dtype, {L, hidden_});

  const ArenaScope scope(c.scratch);
  const Tensor patches = gathered(c, c.scratch, x, moves.patches);
  const Tensor latents = gathered(c, c.scratch, x, moves.latents);
  const Tensor normalized = c.scratch.alloc(c.dtype, patches.shape);
  patches_norm_.forward(c, p, normalized, patches);
  latents_norm_.forward(c, p, queries_in_, latents);
  scatter_rows(c.stream, {.y = keys_in_, .x = normalized, .index = moves.patches});
  scatter_rows(c.stream, {.y = keys_in_, .x = queries_in_, .index = moves.latents});
  q_.forward(c, p, q_rows_, queries_in_);
  kv_.forward(c, p, kv_rows_, keys_in_);
  attention_forward(c.stream, c.scratch,
                    {.o = queries(o_),
                     .lse = lse_,
                     .q = queries(q_rows_),
                     .k = keys(kv_rows_),
                     .v = values(kv_rows_),
                     .mask = mask(c),
                     .scale = 1 / std::sqrt(static_cast<float>(head_dim_))});
  out_.forward(c, p, attended_, o_, latents);
  mlp_norm_.forward(c, p, mlp_in_, attended_);
  if (is_last_) {
    latents_out_ = c.saved.alloc(c.dtype, attended_.shape);
    mlp_.forward(c, p, latents_out_, mlp_in_, attended_);
    return last_norm_.forward(c, p, y, latents_out_);
  }
  mlp_.forward(c, p, latents, mlp_in_, attended_);
  scatter_rows(c.stream, {.y = y, .x = patches, .index = moves.patches});
  scatter_rows(c.stream, {.y = y, .x = latents, .index = moves.latents});
}

void PerceiverLayer::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                              const Tensor& x) {
  const ConnectorMoves& moves = c.images.moves;
  const ArenaScope scope(c.scratch);
  Tensor d_latents, d_patches;
  if (is_last_) {
    d_latents = c.scratch.alloc(c.dtype, attended_.shape);
    last_norm_.backward(c, p, g, d_latents, dx, latents_out_, false);
    d_patches = c.scratch.alloc(c.dtype, {moves.patches.size(), hidden_});
  } else {
    d_latents = gathered(c, c.scratch, dx, moves.latents);
    d_patches = gathered(c, c.scratch, dx, moves.patches);
  }
  const Tensor dh = c.scratch.alloc(c.dtype, attended_.shape);
  mlp_.backward(c, p, g, dh, d_latents, mlp_in_, false);
  mlp_norm_.backward(c, p, g, d_latents, dh, attended_, true);

  const Tensor d_o = c.scratch.alloc(c.dtype, o_.shape), dq = c.scratch.alloc(c.dtype, q_rows_.shape),
               dkv = c.scratch.alloc(c.dtype, kv_rows_.shape);
  out_.backward(c, p, g, d_o, d_latents, o_);
  attention_backward(c.stream, c.scratch,
                     {.dq = queries(dq),
                      .dk = keys(dkv),
                      .dv = values(dkv),
                      .grad_o = queries(d_o),
                      .q = queries(q_rows_),
                      .k = keys(kv_rows_),
                      .v = values(kv_rows_),
                      .o = queries(o_),
                      .lse = lse_,
                      .mask = mask(c),
                      .scale = 1 / std::sqrt(static_cast<float>(head_dim_))});
  const Tensor d_keys = c.scratch.alloc(c.dtype, keys_in_.shape);
  kv_.backward(c, p, g, d_keys, dkv, keys_in_);
  q_.backward(c, p, g, dh, dq, queries_in_);
  add(c.stream, {.y = dh, .a = dh, .b = gathered(c, c.scratch, d_keys, moves.latents)});
  latents_norm_.backward(c, p, g, d_latents, dh, gathered(c, c.scratch, x, moves.latents), true);
  patches_norm_.backward(c, p, g, d_patches, gathered(c, c.scratch, d_keys, moves.patches),
                         gathered(c, c.scratch, x, moves.patches), !is_last_);
  const Tensor d_x = gradient_of_input(dx, x);
  scatter_rows(c.stream, {.y = d_x, .x = d_patches, .index = moves.patches});
  scatter_rows(c.stream, {.y = d_x, .x = d_latents, .index = moves.latents});
}

}  // namespace flatshard
