#pragma once
// Self-attention with its projections: q, k, v = x w^T, optional RMSNorm of q and k (over each head, or over
// all of them), rotary positions, attention within each document of the batch, and the output projection.

#include "kernels/attention.h"
#include "model/config.h"
#include "model/context.h"
#include "model/kv_cache.h"
#include "model/linear.h"
#include "model/names.h"
#include "model/norm.h"

namespace flatshard {

// (N, heads, D) as (N, heads * D): a token's heads, with the spare ones, are a row of the matrix.
inline Tensor rows_of(const Tensor& heads) {
  return heads.view({heads.shape[0], heads.shape[1] * heads.shape[2]});
}

class SelfAttention {
 public:
  SelfAttention(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table);

  // y = attention(x) + r, where r may be empty; x, y and r are (N, hidden), and x may have spare columns
  // (linear.h).
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, const Tensor& r);
  // dx = the gradient of x, given dy, or dx += with accumulate.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, bool accumulate);
  int64_t spare_of_x(const Context& c, int64_t rows) const { return qkv_.spare_of_x(c, rows); }
  void restore_spare_columns(Context& c, const ParamView& p, const Tensor& x) {
    qkv_.restore_spare_columns(c, p, x);
  }

 private:
  // The projections of q, k and v side by side, with spare columns as whole heads, and the heads that
  // attention reads: in `packed`, except that normalized heads of q and k are in `normed`.
  struct Projected {
    Tensor packed, normed;
    Heads q, k, v;
  };
  Projected allocate(Context& c, Arena& arena, int64_t N) const;
  // Makes q and k the heads of `normed`, which it allocates.
  void allocate_normed(Context& c, Arena& arena, Projected& r) const;
  void attend(Context& c, const Heads& o);
  void attend_to_cache(Context& c, const Heads& o) const;
  AttentionMask mask(const Context& c) const;
  void project(Context& c, const ParamView& p, const Tensor& x);
  // Rotates q and k, or with `back` their gradients, in place.
  void rotate(Context& c, const Tensor& packed, bool back) const;

  int64_t layer_, query_heads_, key_heads_, head_dim_, window_;
  bool causal_;
  float scale_, softcap_;
  bool interleaved_rope_;
  RopeSections rope_sections_;  // set only for positions on several axes
  Tensor rope_table_;           // empty if this layer does not rotate
  Linear qkv_, out_;            // qkv_ is three layers, or one fused layer
  QkNorm qk_norm_;

  Projected projected_;
  Heads o_;  // the input of out_; its spare columns are the heads after these
  Tensor lse_;
};

}  // namespace flatshard
