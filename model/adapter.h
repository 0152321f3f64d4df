#pragma once
// The adapters of linear layers that read the same input (lora.h). The layers' own outputs are in y already:
//   u = a dropout(x)^T      y_i += scale_i u_i^T b_i^T      y_i: columns of y (kernels/packed.h)
// The a of all layers are joined into one matrix, so u (ranks, N) is one product, and so are da and the
// update of dx. With dropout each layer has its own mask, and its own products.
//
// Cost relative to a frozen layer, with rank r: 2 r (in + out) more operations per token in the forward pass
// and twice that in the backward pass, where the layer itself needs 2 in out in each. u is the only value
// saved.

#include <string>
#include <vector>

#include "kernels/packed.h"
#include "model/config.h"
#include "model/context.h"
#include "runtime/param.h"

namespace flatshard {

struct AdaptedLayer {
  int64_t column;  // of y and dy: its first
  std::string path;
  int64_t in, out;
  Adapter adapter;
};

class LayerAdapters {
 public:
  LayerAdapters() = default;
  // Declares path.lora_A.weight of all layers, then path.lora_B.weight.
  LayerAdapters(ParamList& params, std::vector<AdaptedLayer> layers);

  // x are the rows of a larger input from `first` on, which decides the masks of dropout.
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, int64_t first = 0);
  // Adds to dx, unless it is empty, and to g where its tensors are not empty.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, int64_t first = 0) const;
  bool empty() const { return layers_.empty(); }

 private:
  struct Layer {
    int64_t column, out;  // its columns of y
    int64_t first, rank;  // its rows of u
    float scale, dropout;
    std::string random;  // names its random numbers
    ParamId b;

    Tensor rows_of(const Tensor& u) const { return u.slice(first, first + rank); }
    Tensor columns_of(const Tensor& y) const { return packed_columns(y, column, {y.shape[0], out}); }
  };
  bool drops(const Context& c) const;

  std::vector<Layer> layers_;
  std::vector<ParamId> a_;
  Tensor u_;
};

}  // namespace flatshard
