#pragma once
// The layers of a model that reads images, before the embedding of its text: the tower turns the patches of
// frames into rows, and the connector turns them into rows of the text's width, which the embedding merges.
// All of them run in every micro-batch, even without an image: then they have no rows, and the gradients of
// their parameters are zero.
//
//   PatchEmbedding  y = w patches + b + the learned positions of patches
//   TowerBlock      a block of another width, in which the patches of a frame attend to each other
// and then, as the connector,
//   PixelShuffle        y = w [squares of patches of norm(x)],
//   PatchMerger         y = w2 gelu(w1 [squares of patches of norm(x)] + b1) + b2, with erf, or
//   ModalityProjection  y = [down(silu(gate(h)) up(h)); latents] of each frame, with h = norm(x),
//   PerceiverLayer      y = [patches; latents'] from x = [patches; latents]; the last one: y = norm(latents')
// In a perceiver layer the latents of a frame attend to its patches and to themselves, l = latents:
//   l' = l + o(attention(q(n1(l)), k, v of [n2(patches); n1(l)]))      latents' = l' + mlp(n3(l'))

#include "model/attention.h"
#include "model/block.h"
#include "model/linear.h"
#include "model/model.h"
#include "model/norm.h"

namespace flatshard {

// The configs of the tower's blocks, and of the MLP and the norms of a perceiver layer.
ModelConfig tower_config(const ModelConfig& config);
ModelConfig perceiver_config(const ModelConfig& config);

class PatchEmbedding : public Layer {
 public:
  PatchEmbedding(ParamList& params, const ModelConfig& config);
  Shape output(const RowCounts& rows) const override { return {rows.patches, hidden_}; }
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<PatchEmbedding>(*this); }

 private:
  Tensor patches_of(LayerCall& c) const;  // patches in the activations' dtype
  Tensor as_matrix(const Tensor& w) const { return w.empty() ? w : w.view({hidden_, width_}); }

  int64_t hidden_, width_;
  bool rotary_;                // no learned positions and no bias
  ParamId w_, b_, positions_;  // w (hidden, 3, size, size), or (hidden, 3, repeats, size, size)
};

class TowerBlock : public Layer {
 public:
  TowerBlock(ParamList& params, const ModelConfig& config, int64_t block, const Tensor& rope_table);
  Shape output(const RowCounts& rows) const override { return {rows.patches, hidden_}; }
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<TowerBlock>(*this); }

 private:
  // The call of the tower, which uses no cache: it sees all patches of a frame, or of a window, at once.
  LayerCall of_tower(const LayerCall& c) const;

  Block block_;
  int64_t hidden_;
  bool windowed_;
};

class PixelShuffle : public Layer {
 public:
  PixelShuffle(ParamList& params, const ModelConfig& config);
  Shape output(const RowCounts& rows) const override { return {rows.patches / square_, hidden_}; }
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<PixelShuffle>(*this); }

 private:
  int64_t square_, hidden_;  // square_: number of patches of a row
  Norm norm_;
  Linear projection_;
  Tensor squares_;  // the input of the projection
};

class PatchMerger : public Layer {
 public:
  PatchMerger(ParamList& params, const ModelConfig& config);
  Shape output(const RowCounts& rows) const override { return {rows.patches / square_, hidden_}; }
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<PatchMerger>(*this); }

 private:
  int64_t square_, hidden_;
  Norm norm_;
  Linear in_, out_;
  Tensor squares_, projected_, activated_;
};

class ModalityProjection : public Layer {
 public:
  ModalityProjection(ParamList& params, const ModelConfig& config);
  Shape output(const RowCounts& rows) const override {
    return {rows.patches + rows.frames * latent_count_, hidden_};
  }
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<ModalityProjection>(*this); }

 private:
  int64_t hidden_, latent_count_;
  Norm norm_;
  Mlp mlp_;
  ParamId latents_;
  Rows normalized_;
};

class PerceiverLayer : public Layer {
 public:
  PerceiverLayer(ParamList& params, const ModelConfig& config, int64_t index);
  Shape output(const RowCounts& rows) const override {
    return {(is_last_ ? 0 : rows.patches) + rows.frames * latent_count_, hidden_};
  }
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<PerceiverLayer>(*this); }

 private:
  bool is_last_;
  int64_t hidden_, latent_count_, query_heads_, key_heads_, head_dim_;
  Norm latents_norm_, patches_norm_, mlp_norm_, last_norm_;
  Linear q_, kv_, out_;
  Mlp mlp_;

  Tensor queries_in_, keys_in_;  // n1(latents), and [n2(patches); n1(latents)]
  Tensor q_rows_, kv_rows_, o_, lse_;
  Tensor attended_, mlp_in_, latents_out_;  // l', n3(l'), and latents' of the last layer

  AttentionMask mask(const LayerCall& c) const;
  Heads queries(const Tensor& rows) const { return heads_in(rows, 0, query_heads_, head_dim_); }
  Heads keys(const Tensor& rows) const { return heads_in(rows, 0, key_heads_, head_dim_); }
  Heads values(const Tensor& rows) const { return heads_in(rows, key_heads_, key_heads_, head_dim_); }
};

}  // namespace flatshard
