#pragma once
// The three kinds of stage that a transformer is made of.

#include "model/attention.h"
#include "model/mlp.h"
#include "model/model.h"
#include "model/norm.h"

namespace flatshard {

// y = the embedding of the tokens, with learned positions where the family has them. Its dx is not used
// further.
class EmbeddingStage : public Stage {
 public:
  EmbeddingStage(ParamList& params, const ModelConfig& config);
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  ParamId weight() const { return w_; }

 private:
  ParamId w_, positions_;
  bool learned_positions_;
};

// r = x + attention(norm1(x));  y = r + mlp(norm2(r))
class Block : public Stage {
 public:
  Block(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table);
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;

 private:
  Norm norm1_;
  SelfAttention attention_;
  Norm norm2_;
  Mlp mlp_;
  Tensor h1_, r_, h2_;
};

// losses = cross_entropy(norm(x) w^T, targets) weights, chunk by chunk; or logits = norm(x) w^T where the
// context asks for them.
class HeadStage : public Stage {
 public:
  // A tied head takes the embedding's weight, which must lie in the same unit.
  HeadStage(ParamList& params, const ModelConfig& config, ParamId tied_weight);
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;

 private:
  Norm norm_;
  ParamId w_;
};

}  // namespace flatshard
