#pragma once
// The layers of a transformer: embedding, blocks or their halves, head.

#include "kernels/head.h"
#include "model/attention.h"
#include "model/mlp.h"
#include "model/model.h"
#include "model/norm.h"

namespace flatshard {

// y = the embedding of the tokens, scaled or with learned positions where the family has them. x is not used,
// and backward leaves dx as it is.
class EmbeddingLayer : public Layer {
 public:
  EmbeddingLayer(ParamList& params, const ModelConfig& config);
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<EmbeddingLayer>(*this); }
  ParamId weight() const { return w_; }

 private:
  ParamId w_, positions_;
  bool learned_positions_;
  float scale_;  // 0: none
};

// The two norms of a half of a block, each of which a family may lack.
struct HalfNorms {
  Norm in, out;
  Tensor h, o;  // in(x), with spare columns, and the output of the layer if there is a norm of it
};

// y = x + out(attention(in(x)))
class AttentionHalf : public Layer {
 public:
  AttentionHalf(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table);
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<AttentionHalf>(*this); }

 private:
  HalfNorms norms_;
  SelfAttention attention_;
};

// y = x + out(mlp(in(x)))
class MlpHalf : public Layer {
 public:
  MlpHalf(ParamList& params, const ModelConfig& config, int64_t layer);
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<MlpHalf>(*this); }

 private:
  HalfNorms norms_;
  Mlp mlp_;
};

// Both halves as one layer.
class Block : public Layer {
 public:
  Block(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table);
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<Block>(*this); }

 private:
  AttentionHalf attention_;
  MlpHalf mlp_;
  Tensor r_;  // output of the attention half
};

// losses = target_weights * cross_entropy(norm(x) w^T, targets), chunk by chunk; or logits = norm(x) w^T, or
// states = norm(x), if the context has a tensor for them.
class HeadLayer : public Layer {
 public:
  // A tied head uses tied_weight, the embedding's: both layers share a parameter list.
  HeadLayer(ParamList& params, const ModelConfig& config, ParamId tied_weight);
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<HeadLayer>(*this); }

 private:
  HeadWork add_to_logits(Context& c, const ParamView& p);
  HeadWork add_to_gradients(Context& c, const ParamView& p, const GradView& g) const;

  Norm norm_;
  ParamId w_;
  float softcap_;           // of the logits; 0: none
  LayerAdapters adapters_;  // of an untied head
};

}  // namespace flatshard
