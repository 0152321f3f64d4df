#pragma once
// The adapter of a layer of all experts of a mixture (lora.h): gate and up, or down. For R rows of experts,
// each multiplied with the matrices of its own expert e,
//   u = x a_e^T      y += scale u b_e^T
// The a of all experts are one parameter (E r, in), and so are their b, with the index of the expert last:
// (out, r E), as PEFT stores them. Gate and up, which are side by side in y, or in turn, have one a. u is not
// saved, but computed again for the backward pass. There is no dropout, as in PEFT's adapters of experts.

#include <string>

#include "model/config.h"
#include "model/expert_matrices.h"

namespace flatshard {

// The segments of R rows.
struct ExpertSegments {
  Tensor offsets;
  Tensor rows{};  // (R): the tokens whose rows of x they are; empty: x has R rows
  int64_t most_rows = 0;
};

class ExpertAdapter {
 public:
  struct Layer {
    std::string path;  // as names.h: adapted_layer()
    std::string name;  // how the names of its parameters begin, before ".lora_A.weight"
    int64_t in, out;
  };

  ExpertAdapter() = default;
  // Declares the layer's adapter, if the config has one. `share` is that of experts.
  ExpertAdapter(ParamList& params, const ModelConfig& config, const Layer& layer, double share);

  bool empty() const { return rank_ == 0; }
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x,
               const ExpertSegments& s) const;
  // Returns du (R, r) in scratch, and adds to dx, unless it is empty.
  Tensor backward(LayerCall& c, const ParamView& p, const Tensor& dx, const Tensor& dy,
                  const ExpertSegments& s) const;
  void add_gradients(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& du, const Tensor& dy,
                     const Tensor& x, const ExpertSegments& s) const;

 private:
  Tensor project(LayerCall& c, const ParamView& p, const Tensor& x, const ExpertSegments& s) const;

  int64_t rank_ = 0;
  float scale_ = 0;
  ExpertMatrices a_, b_;
};

}  // namespace flatshard
