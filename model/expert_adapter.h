#pragma once
// The adapters of all experts of a mixture, for layers that read the same input (lora.h): gate and up, or
// down. For R rows of experts, each multiplied with the matrices of its own expert,
//   u = x a^T      y_i += scale_i u_i b_i^T      y_i: columns of y (kernels/packed.h)
// The a of an expert's layers are joined into one matrix. u is not saved, but computed again for the backward
// pass. There is no dropout, as in PEFT's adapters of experts.
//
// In families whose files join experts (names.h), gate and up are one layer, and the a and b of all experts
// are one parameter each, as PEFT stores them: (E r, in), and (out, r E) with the index of the expert last.

#include <string>
#include <vector>

#include "model/config.h"
#include "model/expert_matrices.h"
#include "model/rows.h"

namespace flatshard {

// One layer of each expert, whose adapters are alike.
struct ExpertLayer {
  std::vector<std::string> paths;  // of the layers that have the adapters
  int64_t column;                  // first column of the layer in y and dy
  int64_t in, out;
};

// The segments of R rows.
struct ExpertSegments {
  Tensor offsets;
  Tensor rows{};  // (R): the tokens whose rows of x they are; empty: x has R rows
  int64_t most_rows = 0;
};

class ExpertAdapter {
 public:
  ExpertAdapter() = default;
  // Declares the adapters that the config has: of all experts, or of none. `share` is that of experts.
  ExpertAdapter(ParamList& params, const ModelConfig& config, const std::vector<ExpertLayer>& layers,
                double share);
  // The adapter of one layer of all experts, whose parameters are named `name`.lora_A and lora_B.
  ExpertAdapter(ParamList& params, const ModelConfig& config, const ExpertLayer& layer,
                const std::string& name, double share);

  bool empty() const { return layers_.empty(); }
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x,
               const ExpertSegments& s) const;
  // Returns du (R, ranks) in scratch, and adds to dx, unless it is empty.
  Tensor backward(LayerCall& c, const ParamView& p, const Tensor& dx, const Tensor& dy,
                  const ExpertSegments& s) const;
  void add_gradients(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& du, const Tensor& dy,
                     const Tensor& x, const ExpertSegments& s) const;

 private:
  struct Layer {
    int64_t column, out;  // columns of the layer in y
    int64_t first, rank;  // columns of the layer in u
    float scale;
    ExpertMatrices b;

    Tensor columns_of(const Tensor& y) const { return Rows(y, column, out).values(); }
    Tensor part_of(const Tensor& u) const { return Rows(u, first, rank).values(); }
  };
  Tensor project(LayerCall& c, const ParamView& p, const Tensor& x, const ExpertSegments& s) const;

  std::vector<Layer> layers_;
  ExpertMatrices a_;
  int64_t ranks_ = 0;
};

}  // namespace flatshard
