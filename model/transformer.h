#pragma once
// The first and the last layer of a transformer: embedding and head. block.h has the ones between them.

#include "kernels/head.h"
#include "model/adapter.h"
#include "model/model.h"
#include "model/norm.h"

namespace flatshard {

// y = the embedding of the tokens, scaled or with learned positions if the family has them. The rows of x
// replace the rows of y that images.rows lists. Without images x is not used, and backward() does not change
// dx.
class EmbeddingLayer : public TextLayer {
 public:
  EmbeddingLayer(ParamList& params, const ModelConfig& config);
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<EmbeddingLayer>(*this); }
  ParamId weight() const { return w_; }

 private:
  ParamId w_, positions_;
  bool learned_positions_;
  bool scales_by_width_;
  float factor_;

  float factor(DType dtype) const;  // factor of the embedding
  void add_gradients(LayerCall& c, const GradView& g, const Tensor& dy) const;
};

// losses = target_weights * cross_entropy(logits, targets), chunk by chunk; or logits = factor norm(x) w^T,
// or states = norm(x), if the call has a tensor for them. The factor multiplies norm(x), which has fewer
// elements than the logits.
class HeadLayer : public TextLayer {
 public:
  // A tied head uses tied_weight, the embedding's: both layers share a parameter list.
  HeadLayer(ParamList& params, const ModelConfig& config, ParamId tied_weight);
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<HeadLayer>(*this); }

 private:
  HeadWork add_to_logits(LayerCall& c, const ParamView& p);
  HeadWork add_to_gradients(LayerCall& c, const ParamView& p, const GradView& g) const;
  static HeadWork weigh(LayerCall& c, const Tensor& gradient_weights);

  void normalize(LayerCall& c, const ParamView& p, const Tensor& h, const Tensor& x);

  Norm norm_;
  ParamId w_;
  float logit_factor_;
  float softcap_;           // soft cap of the logits; 0: none
  LayerAdapters adapters_;  // adapters of an untied head
};

}  // namespace flatshard
