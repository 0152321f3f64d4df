#pragma once
// The layers of a transformer: embedding, blocks or their halves, head.

#include "kernels/head.h"
#include "model/attention.h"
#include "model/mlp.h"
#include "model/model.h"
#include "model/norm.h"

namespace flatshard {

// A layer whose output has one row for each token.
class TextLayer : public Layer {
 public:
  explicit TextLayer(const ModelConfig& config) : hidden_(config.hidden) {}
  Shape output(const RowCounts& rows) const override { return {rows.tokens, hidden_}; }

 protected:
  int64_t hidden_;
};

// y = the embedding of the tokens, scaled or with learned positions if the family has them. The rows of x
// replace the rows of y that images.rows lists. Without images x is not used, and backward() does not change
// dx.
class EmbeddingLayer : public TextLayer {
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
  bool scales_by_width_;
  float factor_;

  float factor(DType dtype) const;  // factor of the embedding
  void add_gradients(Context& c, const GradView& g, const Tensor& dy) const;
};

// The parts of a half of a block around its layer: two norms, each of which a family may lack, and the factor
// of the half's output.
struct HalfFrame {
  Norm in, out;
  float factor;
  // h is in(x), with spare columns; it is not saved with Context::recompute. o is the layer's output, if
  // there is an output norm or a factor.
  Tensor h, o;
};

// y = x + factor out(attention(in(x)))
class AttentionHalf : public TextLayer {
 public:
  AttentionHalf(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table);
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<AttentionHalf>(*this); }

 private:
  HalfFrame frame_;
  SelfAttention attention_;
};

// y = x + factor out(mlp(in(x)))
class MlpHalf : public TextLayer {
 public:
  MlpHalf(ParamList& params, const ModelConfig& config, int64_t layer);
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<MlpHalf>(*this); }

 private:
  HalfFrame frame_;
  Mlp mlp_;
};

// Both halves as one layer.
class Block : public TextLayer {
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

// losses = target_weights * cross_entropy(logits, targets), chunk by chunk; or logits = factor norm(x) w^T,
// or states = norm(x), if the context has a tensor for them. The factor multiplies norm(x), which has fewer
// elements than the logits.
class HeadLayer : public TextLayer {
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
  static HeadWork weigh(Context& c, const Tensor& gradient_weights);

  void normalize(Context& c, const ParamView& p, const Tensor& h, const Tensor& x);

  Norm norm_;
  ParamId w_;
  float logit_factor_;
  float softcap_;           // soft cap of the logits; 0: none
  LayerAdapters adapters_;  // adapters of an untied head
};

}  // namespace flatshard
