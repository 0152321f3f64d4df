#pragma once
// What a block does between the product for q, k and v and the output product: it normalizes and rotates the
// heads of q and k, token by token, and then attends within each document of the batch, or over a KV cache.
// Only Attention relates tokens to each other.

#include <optional>

#include "kernels/attention.h"
#include "kernels/product_end.h"
#include "model/config.h"
#include "model/layer_call.h"
#include "model/rows.h"
#include "runtime/param.h"

namespace flatshard {

// Heads [first, first + count) of D elements in each row.
Heads heads_in(const Rows& rows, int64_t first, int64_t count, int64_t D);

struct QkvHeads {
  Heads q, k, v;
};

// RMSNorm of the heads of q and k, over each head or over all of them, if the family has it, and their
// rotation (kernels/qk_norm.h, kernels/rope.h). Rows are packed, (N, (Hq + 2 Hkv) D).
class QkHeads {
 public:
  // Declares the weights of the norms. An empty table means no rotation.
  QkHeads(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table);

  // What the product that makes these rows of qkv ends with: the rotation of its q and k, if they have no
  // norms that come first. Tiles are rotated together, by forward().
  ProductEnd end_of_product(const LayerCall& c, const Rows& qkv) const;
  // Returns the heads that attention reads. A rotation without norms is in place. Normalized heads of q and k
  // have a tensor of their own, which is in scratch with LayerCall::recomputes_ops.
  QkvHeads forward(LayerCall& c, const ParamView& p, const Rows& qkv);
  // Returns these heads for the backward pass, computed again unless they were saved.
  QkvHeads again(LayerCall& c, const ParamView& p, const Rows& qkv, const QkvHeads& heads) const;
  // Works in place: d holds the gradients of the returned heads on entry, of qkv on return.
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Rows& d, const Rows& qkv) const;
  QkvHeads in(const Rows& packed) const;

 private:
  Tensor q_and_k(const Rows& packed) const;  // (N, Hq + Hkv, D)
  QkvHeads normalize(LayerCall& c, const ParamView& p, Arena& arena, const Rows& qkv) const;
  // The rotation of q and k, in place.
  RopeForward rotation(const LayerCall& c, const Rows& packed) const;
  void rotate_back(LayerCall& c, const Rows& packed) const;

  int64_t query_heads_, key_heads_, head_dim_;
  bool interleaved_rope_;
  RopeSections rope_sections_;  // set only for positions on several axes
  Tensor rope_table_;

  bool normalizes_;
  bool rotates_apart_;       // after the norm, as only a part of a head is rotated, or neighbors are
  int64_t normed_rows_ = 0;  // separately normalized rows of a token
  float eps_, offset_;
  bool rounds_;
  ParamId wq_, wk_;
  Tensor rstd_;
};

// o = attention(q, k, v), for heads o in rows of (N, Hq D).
// The arena of attention's output and lse.
inline Arena& saved_attention(const LayerCall& c) { return c.kept ? *c.kept : c.saved; }

class Attention {
 public:
  // Declares the sinks of heads, if the family has them.
  Attention(ParamList& params, const ModelConfig& config, int64_t layer);

  void forward(LayerCall& c, const ParamView& p, const Rows& o, const QkvHeads& heads);
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const QkvHeads& d, const Rows& d_o,
                const QkvHeads& heads, const Rows& o) const;

 private:
  void attend_to_cache(LayerCall& c, const ParamView& p, const Heads& o, const QkvHeads& heads) const;
  Tensor sinks(const ParamView& p) const { return sinks_ ? p[*sinks_] : Tensor{}; }
  Heads output_heads(const Rows& o) const { return heads_in(o, 0, query_heads_, head_dim_); }
  AttentionMask mask(const LayerCall& c) const;

  int64_t layer_, query_heads_, head_dim_, window_;
  bool causal_;
  float scale_, softcap_;
  std::optional<ParamId> sinks_;
  Tensor lse_;
};

}  // namespace flatshard
