#include "model/attention.h"

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/rope.h"

namespace flatshard {
SelfAttention::SelfAttention(ParamList& params, const ModelConfig& config, int64_t layer,
                             const Tensor& rope_table)
    : config_(config),
      layer_(layer),
      scale_(1.0f / std::sqrt(static_cast<float>(config.query_scalar))),
      rope_table_(rope_table) {
  const ParamNames& names = param_names(config.family);
  const std::string block = block_prefix(names, layer);
  const int64_t C = config.hidden, q_size = config.heads * config.head_dim,
                kv_size = config.kv_heads * config.head_dim;
  const bool bias = *config.qkv_bias;
  if (names.fused_qkv()) {
    qkv_ = Linear(params, config,
                  {{block + names.qkv, C, q_size + 2 * kv_size, bias, names.transposed_weights}});
  } else {
    qkv_ = Linear(params, config,
                  {{block + names.q, C, q_size, bias},
                   {block + names.k, C, kv_size, bias},
                   {block + names.v, C, kv_size, bias}});
  }
  if (*config.qk_norm) {
    const bool whole = config.qk_norm_width == QkNormWidth::all_heads;
    q_norm_ = Norm(params, config, block + names.q_norm, NormKind::rms, whole ? q_size : config.head_dim);
    k_norm_ = Norm(params, config, block + names.k_norm, NormKind::rms, whole ? kv_size : config.head_dim);
  }
  const float init_std = 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
  out_ = Linear(
      params, config,
      {{block + names.attention_out, q_size, C, config.linear_bias, names.transposed_weights, init_std}});
}

SelfAttention::Projected SelfAttention::allocate(Context& c, Arena& arena, int64_t N) const {
  const DType dtype = c.dtype;
  const int64_t Hq = config_.heads, Hkv = config_.kv_heads, D = config_.head_dim;
  Projected r;
  if (param_names(config_.family).fused_qkv()) {
    r.packed = arena.alloc(dtype, {N, Hq + 2 * Hkv, D});
    r.q_heads = {r.packed, 0, Hq};
    r.k_heads = {r.packed, Hq, Hkv};
    r.v_heads = {r.packed, Hq + Hkv, Hkv};
    return r;
  }
  r.q = arena.alloc(dtype, {N, Hq, D});
  r.k = arena.alloc(dtype, {N, Hkv, D});
  r.v = arena.alloc(dtype, {N, Hkv, D});
  r.q_heads = r.q;
  r.k_heads = r.k;
  r.v_heads = r.v;
  return r;
}

AttentionMask SelfAttention::mask(const Context& c) const {
  return {.cu_seqlens = c.boundaries, .causal = true, .window = config_.window_of(layer_)};
}

void SelfAttention::project(Context& c, const ParamView& p, const Tensor& x) {
  const int64_t N = x.shape[0];
  projected_ = allocate(c, c.saved, N);
  if (!projected_.packed.empty()) {
    qkv_.forward(c, p, {projected_.packed.view({N, projected_.packed.size() / N})}, x);
    return rotate(c, projected_, false);
  }
  const auto rows = [N](const Tensor& t) { return t.view({N, t.size() / N}); };
  q_unnormed_ = projected_.q;
  k_unnormed_ = projected_.k;
  if (*config_.qk_norm) {
    q_unnormed_ = c.saved.alloc(c.dtype, projected_.q.shape);
    k_unnormed_ = c.saved.alloc(c.dtype, projected_.k.shape);
  }
  qkv_.forward(c, p, {rows(q_unnormed_), rows(k_unnormed_), rows(projected_.v)}, x);
  if (*config_.qk_norm) {
    const Shape q = rows_to_normalize(projected_.q), k = rows_to_normalize(projected_.k);
    q_norm_.forward(c, p, projected_.q.view(q), q_unnormed_.view(q));
    k_norm_.forward(c, p, projected_.k.view(k), k_unnormed_.view(k));
  }
  rotate(c, projected_, false);
}

Shape SelfAttention::rows_to_normalize(const Tensor& heads) const {
  if (config_.qk_norm_width == QkNormWidth::head) return heads.shape;
  return {heads.shape[0], heads.size() / heads.shape[0]};
}

void SelfAttention::rotate(Context& c, const Projected& of, bool back) const {
  if (!config_.rotates(layer_)) return;
  const auto turn = [&](const Tensor& t, int64_t stride) {
    if (back)
      rope_backward(c.stream, {.dx = t,
                               .dy = t,
                               .positions = c.positions,
                               .table = rope_table_,
                               .dx_stride = stride,
                               .dy_stride = stride});
    else
      rope_forward(c.stream, {.y = t,
                              .x = t,
                              .positions = c.positions,
                              .table = rope_table_,
                              .y_stride = stride,
                              .x_stride = stride});
  };
  if (of.packed.empty()) {
    turn(of.q, 0);
    return turn(of.k, 0);
  }
  // q and k are neighbors: one call rotates both.
  const int64_t N = of.packed.shape[0], width = of.packed.size() / N;
  const Shape heads{N, config_.heads + config_.kv_heads, config_.head_dim};
  turn(packed_columns(of.packed.view({N, width}), 0, heads), width);
}

void SelfAttention::attend(Context& c, const Tensor& o) {
  if (c.cache) return attend_to_cache(c, o);
  lse_ = c.saved.alloc(DType::f32, {o.shape[1], o.shape[0]});
  attention_forward(c.stream, c.scratch,
                    {.o = o,
                     .lse = lse_,
                     .q = projected_.q_heads,
                     .k = projected_.k_heads,
                     .v = projected_.v_heads,
                     .mask = mask(c),
                     .scale = scale_,
                     .softcap = static_cast<float>(*config_.attention_softcap)});
}

void SelfAttention::attend_to_cache(Context& c, const Tensor& o) const {
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
                            .q = projected_.q_heads,
                            .k = projected_.k_heads,
                            .v = projected_.v_heads,
                            .texts = std::move(texts),
                            .window = config_.window_of(layer_),
                            .scale = scale_,
                            .softcap = static_cast<float>(*config_.attention_softcap)});
}

void SelfAttention::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x,
                            const Tensor& r) {
  const int64_t N = x.shape[0], Hq = config_.heads, D = config_.head_dim;
  project(c, p, x);
  o_ = c.saved.alloc(c.dtype, {N, Hq, D});
  attend(c, o_);
  out_.forward(c, p, {y}, o_.view({N, Hq * D}), r);
}

void SelfAttention::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                             const Tensor& dy, const Tensor& x) {
  check(!c.cache, "attention_backward: a context with a KV cache has no backward pass");
  const ArenaScope scope(c.scratch);
  const int64_t N = x.shape[0], Hq = config_.heads, D = config_.head_dim;
  const Tensor d_o = c.scratch.alloc(c.dtype, {N, Hq, D});
  out_.backward(c, p, g, d_o.view({N, Hq * D}), {dy}, o_.view({N, Hq * D}));
  const Projected d = allocate(c, c.scratch, N);
  attention_backward(c.stream, c.scratch,
                     {.dq = d.q_heads,
                      .dk = d.k_heads,
                      .dv = d.v_heads,
                      .grad_o = d_o,
                      .q = projected_.q_heads,
                      .k = projected_.k_heads,
                      .v = projected_.v_heads,
                      .o = o_,
                      .lse = lse_,
                      .mask = mask(c),
                      .scale = scale_,
                      .softcap = static_cast<float>(*config_.attention_softcap)});
  rotate(c, d, true);
  if (!d.packed.empty()) return qkv_.backward(c, p, g, dx, {d.packed.view({N, d.packed.size() / N})}, x);

  Tensor dq = d.q, dk = d.k;
  if (*config_.qk_norm) {
    dq = c.scratch.alloc(c.dtype, d.q.shape);
    dk = c.scratch.alloc(c.dtype, d.k.shape);
    const Shape q = rows_to_normalize(dq), k = rows_to_normalize(dk);
    q_norm_.backward(c, p, g, dq.view(q), d.q.view(q), q_unnormed_.view(q), false);
    k_norm_.backward(c, p, g, dk.view(k), d.k.view(k), k_unnormed_.view(k), false);
  }
  const auto rows = [N](const Tensor& t) { return t.view({N, t.size() / N}); };
  qkv_.backward(c, p, g, dx, {rows(dq), rows(dk), rows(d.v)}, x);
}

}  // namespace flatshard
