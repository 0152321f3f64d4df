#include "model/attention.h"

#include <array>
#include <utility>
#include <vector>

#include "kernels/attention_sink.h"
#include "kernels/qk_norm.h"
#include "kernels/rope.h"
#include "model/kv_cache.h"
#include "model/names.h"
#include "model/norm.h"
#include "model/tiles.h"

namespace flatshard {

Heads heads_in(const Rows& rows, int64_t first, int64_t count, int64_t D) {
  return {rows.of.view({rows.count(), rows.stride() / D, D}), rows.begin / D + first, count};
}

QkHeads::QkHeads(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table)
    : query_heads_(config.heads),
      key_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      interleaved_rope_(config.interleaved_rope),
      rope_sections_(config.rope_sections),
      rope_table_(rope_table),
      normalizes_(*config.qk_norm),
      rotates_apart_(normalizes_ && !rope_table.empty() &&
                     (config.interleaved_rope || rope_table.shape[1] < config.head_dim)),
      eps_(static_cast<float>(*config.norm_eps)),
      offset_(config.norm_offset),
      rounds_(config.norm_rounds) {
  if (!normalizes_) return;
  const ParamNames& names = param_names(config.family);
  const std::string block = block_prefix(names, layer);
  const bool all = config.qk_norm_width == QkNormWidth::all_heads;
  const int64_t D = head_dim_;
  normed_rows_ = all ? 2 : query_heads_ + key_heads_;
  wq_ =
      declare_norm(params, config, block + names.q_norm + ".weight", all ? query_heads_ * D : D, 1 - offset_);
  wk_ = declare_norm(params, config, block + names.k_norm + ".weight", all ? key_heads_ * D : D, 1 - offset_);
}

QkvHeads QkHeads::in(const Rows& packed) const {
  const int64_t Hq = query_heads_, Hkv = key_heads_, D = head_dim_;
  return {heads_in(packed, 0, Hq, D), heads_in(packed, Hq, Hkv, D), heads_in(packed, Hq + Hkv, Hkv, D)};
}

Tensor QkHeads::q_and_k(const Rows& packed) const {
  return packed_columns(packed.of, packed.begin, {packed.count(), query_heads_ + key_heads_, head_dim_});
}

ProductEnd QkHeads::end_of_product(const LayerCall& c, const Rows& qkv) const {
  if (normalizes_ || rope_table_.empty() || has_tiles(c)) return {};
  return rotation(c, qkv);
}

QkvHeads QkHeads::forward(LayerCall& c, const ParamView& p, const Rows& qkv) {
  if (!normalizes_) {
    if (has_tiles(c) && !rope_table_.empty()) rope_forward(c.stream, rotation(c, qkv));
    return in(qkv);
  }
  rstd_ = c.saved.alloc(DType::f32, {qkv.count(), normed_rows_});
  return normalize(c, p, c.recomputes_ops ? c.scratch : c.saved, qkv);
}

QkvHeads QkHeads::again(LayerCall& c, const ParamView& p, const Rows& qkv, const QkvHeads& heads) const {
  return normalizes_ && c.recomputes_ops ? normalize(c, p, c.scratch, qkv) : heads;
}

QkvHeads QkHeads::normalize(LayerCall& c, const ParamView& p, Arena& arena, const Rows& qkv) const {
  const Tensor normed = arena.alloc(c.dtype, {qkv.count(), query_heads_ + key_heads_, head_dim_});
  qk_norm_forward(c.stream, {.y = normed,
                             .rstd = rstd_,
                             .x = q_and_k(qkv),
                             .wq = p[wq_],
                             .wk = p[wk_],
                             .positions = c.positions,
                             .table = rotates_apart_ ? Tensor{} : rope_table_,
                             .x_stride = qkv.stride(),
                             .query_heads = query_heads_,
                             .eps = eps_,
                             .offset = offset_,
                             .round_xhat = rounds_});
  if (rotates_apart_)
    rope_forward(c.stream, rotation(c, normed.view({qkv.count(), (query_heads_ + key_heads_) * head_dim_})));
  return {{normed, 0, query_heads_}, {normed, query_heads_, key_heads_}, in(qkv).v};
}

void QkHeads::backward(LayerCall& c, const ParamView& p, const GradView& g, const Rows& d,
                       const Rows& qkv) const {
  if (!normalizes_) return rotate_back(c, d);
  if (rotates_apart_) rotate_back(c, d);
  const std::array trained{wq_, wk_};
  qk_norm_backward(c.stream, c.scratch,
                   {.dx = q_and_k(d),
                    .dwq = g[wq_],
                    .dwk = g[wk_],
                    .dy = q_and_k(d),
                    .x = q_and_k(qkv),
                    .wq = p[wq_],
                    .wk = p[wk_],
                    .rstd = rstd_,
                    .positions = c.positions,
                    .table = rotates_apart_ ? Tensor{} : rope_table_,
                    .dx_stride = d.stride(),
                    .dy_stride = d.stride(),
                    .x_stride = qkv.stride(),
                    .query_heads = query_heads_,
                    .offset = offset_,
                    .round_xhat = rounds_,
                    .accumulate = g.accumulates(trained)});
}

// One call rotates q and k, because they are neighbors.
RopeForward QkHeads::rotation(const LayerCall& c, const Rows& packed) const {
  const Tensor heads = q_and_k(packed);
  return {.y = heads,
          .x = heads,
          .positions = c.positions,
          .table = rope_table_,
          .y_stride = packed.stride(),
          .x_stride = packed.stride(),
          .interleaved = interleaved_rope_,
          .sections = c.positions.size() > packed.count() ? rope_sections_ : RopeSections{}};
}

void QkHeads::rotate_back(LayerCall& c, const Rows& packed) const {
  if (rope_table_.empty()) return;
  const RopeForward forth = rotation(c, packed);
  rope_backward(c.stream, {.dx = forth.y,
                           .dy = forth.y,
                           .positions = forth.positions,
                           .table = forth.table,
                           .dx_stride = forth.y_stride,
                           .dy_stride = forth.y_stride,
                           .interleaved = forth.interleaved,
                           .sections = forth.sections});
}

Attention::Attention(ParamList& params, const ModelConfig& config, int64_t layer)
    : layer_(layer),
      query_heads_(config.heads),
      head_dim_(config.head_dim),
      window_(config.window_of(layer)),
      causal_(config.causal),
      scale_(config.attention_scale()),
      softcap_(static_cast<float>(*config.attention_softcap)) {
  if (!config.sinks) return;
  const ParamNames& names = param_names(config.family);
  sinks_ = params.add({.name = block_prefix(names, layer) + names.sinks,
                       .shape = {query_heads_},
                       .init = Init::normal(0.02f),
                       .role = ParamRole::bias,
                       .decay = false});
}

AttentionMask Attention::mask(const LayerCall& c) const {
  return {.cu_seqlens = c.boundaries, .causal = causal_, .window = window_};
}

void Attention::forward(LayerCall& c, const ParamView& p, const Rows& o, const QkvHeads& heads) {
  if (c.cache) return attend_to_cache(c, p, output_heads(o), heads);
  lse_ = saved_attention(c).alloc(DType::f32, {query_heads_, o.count()});
  attention_forward(c.stream, c.scratch,
                    {.o = output_heads(o),
                     .lse = lse_,
                     .q = heads.q,
                     .k = heads.k,
                     .v = heads.v,
                     .mask = mask(c),
                     .scale = scale_,
                     .softcap = softcap_});
  if (sinks_) attention_sink_forward(c.stream, {.o = output_heads(o), .lse = lse_, .sinks = sinks(p)});
}

void Attention::attend_to_cache(LayerCall& c, const ParamView& p, const Heads& o,
                                const QkvHeads& heads) const {
  std::vector<CachedText> texts;
  for (const auto& [text, rows] : c.texts) {
    const int64_t index = static_cast<int64_t>(texts.size());
    texts.push_back({.cache = c.cache->keys(layer_, text),
                     .past = c.cache->length(text),
                     .rows = rows,
                     .boundaries = c.text_boundaries.slice(index, index + 1).view({4})});
  }
  cached_attention_forward(c.stream, c.scratch,
                           {.o = o,
                            .q = heads.q,
                            .k = heads.k,
                            .v = heads.v,
                            .texts = std::move(texts),
                            .sinks = sinks(p),
                            .window = window_,
                            .scale = scale_,
                            .softcap = softcap_});
}

void Attention::backward(LayerCall& c, const ParamView& p, const GradView& g, const QkvHeads& d,
                         const Rows& d_o, const QkvHeads& heads, const Rows& o) const {
  check(!c.cache, "attention_backward: a call with a KV cache has no backward pass");
  if (sinks_ && !g[*sinks_].empty())
    attention_sink_backward(c.stream, {.dsinks = g[*sinks_],
                                       .grad_o = output_heads(d_o),
                                       .o = output_heads(o),
                                       .lse = lse_,
                                       .sinks = sinks(p),
                                       .accumulate = g.accumulates(*sinks_)});
  attention_backward(c.stream, c.scratch,
                     {.dq = d.q,
                      .dk = d.k,
                      .dv = d.v,
                      .grad_o = output_heads(d_o),
                      .q = heads.q,
                      .k = heads.k,
                      .v = heads.v,
                      .o = output_heads(o),
                      .lse = lse_,
                      .mask = mask(c),
                      .scale = scale_,
                      .softcap = softcap_});
}

}  // namespace flatshard
