#pragma once
// A block, as one layer or as its two halves (LayerCut). For N tokens in C columns, with Hq heads of D
// elements for queries and Hkv for keys, and an MLP of width F:
//
//   rows        1  h = norm(x)                  (N, C)
//               2  qkv = h w_qkv^T              (N, (Hq + 2 Hkv) D)
//               3  q, k = rotate(norm(q, k))
//   attention   4  o = attention(q, k, v)       (N, Hq D)
//   rows        5  r = x + o w_out^T            (N, C)
//               6  m = norm(r)                  (N, C)
//               7  up = m w_up^T                (N, 2F): gate and up side by side; without a gate (N, F)
//               8  a = silu(gate) up            (N, F)
//               9  y = r + a w_down^T           (N, C)
//
// Only step 4 relates tokens to each other; in all other steps a row depends on one row, and they can run
// tile by tile (tiles.h). block.cpp has the same numbers, forward and backward. Families differ in their
// parts: norms before or after a half, or both, and the factor of what a half adds (norm.h); norms and
// rotation of heads (attention.h); the activation (activation.h); biases, joined, 4-bit and adapted weights
// (linear.h).

#include "model/activation.h"
#include "model/attention.h"
#include "model/experts.h"
#include "model/linear.h"
#include "model/mlp.h"
#include "model/model.h"
#include "model/norm.h"

namespace flatshard {

// Steps 1 to 5.
class AttentionHalf : public TextLayer {
 public:
  AttentionHalf(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table);
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<AttentionHalf>(*this); }

 private:
  void add_rows(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x, const Rows& o);
  void add_again(LayerCall& c, const ParamView& p, const Tensor& x, const Rows& o);
  Rows input_again(LayerCall& c, const ParamView& p, const Tensor& x);

  int64_t head_dim_;
  InputNorm norm_;
  ResidualSum sum_;
  Linear w_qkv_;  // three layers, or one fused layer
  QkHeads qk_;
  Linear w_out_;
  Attention attention_;

  Rows h_, qkv_, o_;
  QkvHeads heads_;
};

// Steps 7 to 9, by an MLP or by a mixture of experts (experts.h).
class BlockMlp {
 public:
  BlockMlp(ParamList& params, const ModelConfig& config, int64_t layer);

  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Rows& x, const Tensor& r);
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Rows& x, bool accumulate);
  Linear& reader();

 private:
  std::variant<Mlp, ExpertMlp> mlp_;
};

// Steps 6 to 9.
class MlpHalf : public TextLayer {
 public:
  MlpHalf(ParamList& params, const ModelConfig& config, int64_t layer);
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<MlpHalf>(*this); }

 private:
  void add_rows(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x);
  void compute_again(LayerCall& c, const ParamView& p, const Tensor& x);
  void rows_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& x);

  InputNorm norm_;
  ResidualSum sum_;
  BlockMlp mlp_;

  Rows m_;
};

// Both halves as one layer.
class Block : public TextLayer {
 public:
  Block(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table);
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) override;
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                const Tensor& x) override;
  std::unique_ptr<Layer> clone() const override { return std::make_unique<Block>(*this); }

 private:
  AttentionHalf attention_;
  MlpHalf mlp_;
  Tensor r_;
};

}  // namespace flatshard
