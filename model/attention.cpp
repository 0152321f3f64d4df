#include "model/attention.h"

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/rope.h"

namespace flatshard {
namespace {

int64_t whole_heads(int64_t columns, int64_t D) { return (columns + D - 1) / D; }

}  // namespace

SelfAttention::SelfAttention(ParamList& params, const ModelConfig& config, int64_t layer,
                             const Tensor& rope_table)
    : layer_(layer),
      query_heads_(config.heads),
      key_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      window_(config.window_of(layer)),
      causal_(config.causal),
      scale_(config.attention_scale()),
      softcap_(static_cast<float>(*config.attention_softcap)),
      interleaved_rope_(config.interleaved_rope),
      rope_sections_(config.rope_sections),
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
  if (*config.qk_norm) qk_norm_ = QkNorm(params, config, block + names.q_norm, block + names.k_norm);
  const float init_std = 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
  out_ = Linear(
      params, config,
      {{block + names.attention_out, q_size, C, config.linear_bias, names.transposed_weights, init_std}});
}

SelfAttention::Projected SelfAttention::allocate(Context& c, Arena& arena, int64_t N) const {
  const int64_t Hq = query_heads_, Hkv = key_heads_, D = head_dim_;
  Projected r;
  r.packed = arena.alloc(c.dtype, {N, Hq + 2 * Hkv + whole_heads(qkv_.spare_of_y(c, N), D), D});
  r.q = {r.packed, 0, Hq};
  r.k = {r.packed, Hq, Hkv};
  r.v = {r.packed, Hq + Hkv, Hkv};
  return r;
}

void SelfAttention::allocate_normed(Context& c, Arena& arena, Projected& r) const {
  r.normed = arena.alloc(c.dtype, {r.packed.shape[0], query_heads_ + key_heads_, head_dim_});
  r.q = {r.normed, 0, query_heads_};
  r.k = {r.normed, query_heads_, key_heads_};
}

AttentionMask SelfAttention::mask(const Context& c) const {
  return {.cu_seqlens = c.boundaries, .causal = causal_, .window = window_};
}

void SelfAttention::project(Context& c, const ParamView& p, const Tensor& x) {
  projected_ = allocate(c, c.saved, x.shape[0]);
  if (qk_norm_.exists()) allocate_normed(c, c.recompute ? c.scratch : c.saved, projected_);
  qkv_.forward(c, p, rows_of(projected_.packed), x);
  if (qk_norm_.exists())
    qk_norm_.forward(c, p, projected_.normed, projected_.packed, rope_table_);
  else
    rotate(c, projected_.packed, false);
}

// One call rotates q and k, because they are neighbors.
void SelfAttention::rotate(Context& c, const Tensor& packed, bool back) const {
  if (rope_table_.empty()) return;
  const Tensor rows = rows_of(packed);
  const int64_t width = rows.shape[1];
  const bool axes = c.positions.size() > packed.shape[0];
  const RopeSections sections = axes ? rope_sections_ : RopeSections{};
  const Tensor heads = packed_columns(rows, 0, {packed.shape[0], query_heads_ + key_heads_, head_dim_});
  if (back)
    rope_backward(c.stream, {.dx = heads,
                             .dy = heads,
                             .positions = c.positions,
                             .table = rope_table_,
                             .dx_stride = width,
                             .dy_stride = width,
                             .interleaved = interleaved_rope_,
                             .sections = sections});
  else
    rope_forward(c.stream, {.y = heads,
                            .x = heads,
                            .positions = c.positions,
                            .table = rope_table_,
                            .y_stride = width,
                            .x_stride = width,
                            .interleaved = interleaved_rope_,
                            .sections = sections});
}

void SelfAttention::attend(Context& c, const Heads& o) {
  if (c.cache) return attend_to_cache(c, o);
  lse_ = c.saved.alloc(DType::f32, {o.count, o.rows()});
  attention_forward(c.stream, c.scratch,
                    {.o = o,
                     .lse = lse_,
                     .q = projected_.q,
                     .k = projected_.k,
                     .v = projected_.v,
                     .mask = mask(c),
                     .scale = scale_,
                     .softcap = softcap_});
}

void SelfAttention::attend_to_cache(Context& c, const Heads& o) const {
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
                            .q = projected_.q,
                            .k = projected_.k,
                            .v = projected_.v,
                            .texts = std::move(texts),
                            .window = window_,
                            .scale = scale_,
                            .softcap = softcap_});
}

void SelfAttention::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x,
                            const Tensor& r) {
  const ArenaScope scope(c.scratch);
  const int64_t N = x.shape[0], Hq = query_heads_, D = head_dim_;
  project(c, p, x);
  o_ = {c.saved.alloc(c.dtype, {N, Hq + whole_heads(out_.spare_of_x(c, N), D), D}), 0, Hq};
  attend(c, o_);
  out_.forward(c, p, y, rows_of(o_.of), r);
}

void SelfAttention::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                             const Tensor& dy, const Tensor& x, bool accumulate) {
  check(!c.cache, "attention_backward: a context with a KV cache has no backward pass");
  const ArenaScope scope(c.scratch);
  const int64_t N = x.shape[0], Hq = query_heads_, D = head_dim_;
  const Tensor d_o = c.scratch.alloc(c.dtype, {N, Hq, D});
  out_.backward(c, p, g, rows_of(d_o), dy, rows_of(o_.of));
  const Projected d = allocate(c, c.scratch, N);
  if (c.recompute && qk_norm_.exists()) {
    allocate_normed(c, c.scratch, projected_);
    qk_norm_.forward_again(c, p, projected_.normed, projected_.packed, rope_table_);
  }
  attention_backward(c.stream, c.scratch,
                     {.dq = d.q,
                      .dk = d.k,
                      .dv = d.v,
                      .grad_o = d_o,
                      .q = projected_.q,
                      .k = projected_.k,
                      .v = projected_.v,
                      .o = o_,
                      .lse = lse_,
                      .mask = mask(c),
                      .scale = scale_,
                      .softcap = softcap_});
  if (qk_norm_.exists())
    qk_norm_.backward(c, p, g, d.packed, projected_.packed, rope_table_);
  else
    rotate(c, d.packed, true);
  qkv_.backward(c, p, g, dx, rows_of(d.packed), x, accumulate);
}

}  // namespace flatshard
