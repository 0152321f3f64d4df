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
// In some families all tokens share one more expert: y also adds its output, or sigmoid(x w_gate^T) times its
// output.
//
// Experts may have biases: step 3 then adds that of gate and up, and step 5 that of o (expert_bias.h). With
// gate and up in turn, matrices are stored as (C, 2F) and (F, C), as in the files of such families.
//
// How many rows an expert has is known on the device alone; R is enough for any choice. In memory expert
// follows expert: gate, up, down; or each matrix is a 4-bit weight. Experts may have adapters
// (expert_adapter.h), whose updates are products of their own.
//
// If experts are divided among ranks (expert_exchange.h), each rank routes and combines its own tokens, and
// steps 3 to 5 are computed by the owners of the experts (experts_on_peers.cpp).

#include <optional>
#include <utility>

#include "kernels/route.h"
#include "model/activation.h"
#include "model/expert_adapter.h"
#include "model/expert_matrices.h"
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
  // A layer of each expert.
  struct Layer {
    std::vector<std::string> paths;
    int64_t in, out;
  };
  Layer layer_named(const ModelConfig& config, const std::string& name, int64_t in, int64_t out) const;
  static std::optional<FourBitFormat> format_of(const ModelConfig& config, const std::vector<Layer>& layers);
  void declare_matrices(ParamList& params, const ModelConfig& config, const std::vector<Layer>& layers,
                        bool transposed);
  void declare_experts(ParamList& params, const ModelConfig& config);
  void declare_interleaved(ParamList& params, const ModelConfig& config);
  void declare_adapters(ParamList& params, const ModelConfig& config);
  void declare_shared(ParamList& params, const ModelConfig& config);
  void route(LayerCall& c, const ParamView& p, const Rows& x);
  // Steps 3 to 5; with an empty o only what the backward pass needs.
  void compute(LayerCall& c, const ParamView& p, const Tensor& o, const Rows& x);
  // The same steps back, to dweights and, with input_gradient, d_rows; without it d_rows is workspace.
  void compute_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& d_rows,
                        const Tensor& dweights, const Tensor& dy, const Rows& x, bool input_gradient);

  // experts_on_peers.cpp: the same by the ranks that own the experts.
  class Round;
  void compute_on_peers(LayerCall& c, const ParamView& p, const Tensor& o, const Rows& x) const;
  void compute_backward_on_peers(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& d_rows,
                                 const Tensor& dweights, const Tensor& dy, const Rows& x,
                                 bool input_gradient) const;
  void activate(LayerCall& c, const ParamView& p, const Round& round, const Tensor& a, const Tensor& up,
                const Tensor& rows, int64_t tokens) const;
  Tensor own_biases(const LayerCall& c, const Tensor& of_all) const;

  ExpertSegments segments(int64_t most_rows) const { return {.offsets = offsets_, .most_rows = most_rows}; }
  // The same, of rows of tokens.
  ExpertSegments gathered(int64_t most_rows) const {
    return {.offsets = offsets_, .rows = rows_, .most_rows = most_rows};
  }
  void router_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                       const Tensor& dweights, const Rows& x) const;

  // The expert of all tokens, and its gate.
  struct Shared {
    Mlp mlp;
    std::optional<Linear> gate{};
    Tensor o{}, logits{};  // with a gate: (N, C), and (N, 1) in fp32
  };
  // r, or with a shared expert r and its output, in scratch. Without `output` only what backward() needs.
  Tensor add_shared(LayerCall& c, const ParamView& p, const Rows& x, const Tensor& r, bool output);
  void shared_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                       const Tensor& dy, const Rows& x);
  void add_bias(LayerCall& c, const ParamView& p, const Tensor& x, std::optional<ParamId> bias) const;
  // Adds the gradients of biases from that of x; for the output of experts also the part of dweights that
  // comes from their biases.
  void bias_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                     std::optional<ParamId> bias, const Tensor& dweights = {}) const;
  // The gradient of logits in the dtype of activations.
  static Tensor rounded(LayerCall& c, const Tensor& gradient);

  int64_t layer_, count_, per_token_, ffn_, hidden_;
  double share_;  // share of the tokens that an expert gets if loads are even
  RouteRule rule_;
  Activation activation_;
  Linear router_;
  std::optional<ParamId> router_bias_;
  ExpertMatrices gate_up_, down_;
  std::optional<ParamId> gate_up_bias_, down_bias_;  // (E, 2F), (E, C)
  ExpertAdapter gate_up_adapter_, down_adapter_;
  std::optional<Shared> shared_;

  Tensor logits_, chosen_, weights_;  // of tokens
  Tensor offsets_, rows_, places_;    // of the experts' rows
  Tensor up_, a_;
};

}  // namespace flatshard
