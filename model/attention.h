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

class SelfAttention {
 public:
  SelfAttention(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table);

  // y = attention(x) + r, where r may be empty; x, y and r are (N, hidden).
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, const Tensor& r);
  // dx = the gradient for x, given dy.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x);

 private:
  // The outputs of the projections (q, k and v, or packed), and the heads that attention reads.
  struct Projected {
    Tensor q, k, v, packed;
    Heads q_heads, k_heads, v_heads;
  };
  Projected allocate(Context& c, Arena& arena, int64_t N) const;
  void attend(Context& c, const Tensor& o);
  void attend_to_cache(Context& c, const Tensor& o) const;
  AttentionMask mask(const Context& c) const;
  void project(Context& c, const ParamView& p, const Tensor& x);
  // Rotates q and k, or with `back` their gradients, in place.
  void rotate(Context& c, const Projected& of, bool back) const;
  Shape rows_to_normalize(const Tensor& heads) const;

  ModelConfig config_;
  int64_t layer_;
  float scale_;
  Tensor rope_table_;
  Linear qkv_, out_;  // qkv_: three layers, or one
  Norm q_norm_, k_norm_;

  Projected projected_;             // inputs of attention
  Tensor q_unnormed_, k_unnormed_;  // inputs of q_norm_ and k_norm_
  Tensor o_, lse_;
};

}  // namespace flatshard
