#pragma once
// The MLP of a block with a mixture of experts. Each of E experts is a gated MLP of width F; a router sends a
// token to k of them. For N tokens in C columns, and R rows of experts (kernels/expert_rows.h):
//
//   1  logits = x w_router^T            (N, E), in fp32
//   2  k experts of each token, and their weights
//   3  up = x[row's token] w_up^T       (R, 2F): gate and up side by side, a segment of rows for each expert
//   4  a = silu(gate) up                (R, F)
//   5  o = a w_down^T                   (R, C)
//   6  y = r + sum over a token's experts of weight o
//
// In some families all tokens share one more expert: y also adds sigmoid(x w_gate^T) times its output.
//
// How many rows an expert has is known on the device alone; R is enough for any choice. In memory expert
// follows expert: gate, up, down.

#include <optional>
#include <utility>

#include "model/activation.h"
#include "model/linear.h"
#include "model/mlp.h"

namespace flatshard {

class ExpertMlp {
 public:
  ExpertMlp(ParamList& params, const ModelConfig& config, int64_t layer);

  // As Mlp (block.h).
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Rows& x, const Tensor& r);
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Rows& x, bool accumulate);
  Linear& reader() { return router_; }

 private:
  // The gate and up of all experts, or down: matrices at equal distances.
  enum class Part { gate_up, down };
  Tensor matrices(const Tensor& first, Part part) const;
  Tensor weights(const ParamView& p, Part part) const;
  std::vector<ParamId> ids(Part part) const;
  int64_t expert_size() const { return 3 * ffn_ * hidden_; }

  void route(LayerCall& c, const ParamView& p, const Rows& x);
  // dw += dy^T x of each expert; `rows` as in GroupedProduct.
  void weight_gradient(LayerCall& c, const GradView& g, Part part, const Tensor& dy, const Tensor& x,
                       const Tensor& rows) const;
  void router_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                       const Tensor& dweights, const Rows& x) const;

  // The expert of all tokens, and its gate.
  struct Shared {
    Shared(Mlp of_all, Linear of_gate) : mlp(std::move(of_all)), gate(std::move(of_gate)) {}
    Mlp mlp;
    Linear gate;
    Tensor o, logits;  // (N, C), and (N, 1) in fp32
  };
  // r, or with a shared expert r and its output, in scratch. Without `output` only what backward() needs.
  Tensor add_shared(LayerCall& c, const ParamView& p, const Rows& x, const Tensor& r, bool output);
  void shared_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                       const Tensor& dy, const Rows& x);
  // The gradient of logits in the dtype of activations.
  static Tensor rounded(LayerCall& c, const Tensor& gradient);

  int64_t layer_, count_, per_token_, ffn_, hidden_;
  bool normalized_;
  Activation activation_;
  Linear router_;
  std::vector<ParamId> experts_;  // gate, up, down of each
  std::optional<Shared> shared_;

  Tensor logits_, chosen_, weights_;  // of tokens
  Tensor offsets_, rows_, places_;    // of the experts' rows
  Tensor up_, a_;
};

}  // namespace flatshard
