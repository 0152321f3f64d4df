#pragma once
// The adapters of linear layers that read the same input (lora.h). y already contains the layers' own
// outputs:
//   u = a dropout(x)^T      y_i += scale_i u_i^T b_i^T      y_i: columns of y (kernels/packed.h)
// The a of all layers are joined into one matrix, so u (ranks, N) is one product, and so are da and the
// update of dx. With dropout, each layer has its own mask and its own products.
//
// If x has spare columns (linear.h), they contain u^T, multiplied by the scale, and a product of the layers
// adds the update; if dy has spare columns, they contain du^T.
//
// Cost relative to a frozen layer, with rank r: 2 r (in + out) more operations per token in the forward pass
// and twice that in the backward pass, where the layer itself needs 2 in out in each. u is the only value
// saved.

#include <string>
#include <vector>

#include "model/config.h"
#include "model/layer_call.h"
#include "model/rows.h"
#include "runtime/param.h"

namespace flatshard {

struct AdaptedLayer {
  int64_t column;  // first column of the layer in y and dy
  std::string path;
  int64_t in, out;
  Adapter adapter;
};

// The initial values of an a.
Init initial_a(const Adapter& adapter, int64_t in);

class LayerAdapters {
 public:
  LayerAdapters() = default;
  // Declares path.lora_A.weight of all layers, then path.lora_B.weight.
  LayerAdapters(ParamList& params, const std::vector<AdaptedLayer>& layers);

  // x are the rows of a larger input from `first` on; `first` determines the masks of dropout.
  void forward(LayerCall& c, const ParamView& p, const Rows& y, const Rows& x, int64_t first = 0);
  // The two parts of forward(): project() computes u, add_update() adds the update to y, unless u is in spare
  // columns.
  void project(LayerCall& c, const ParamView& p, const Rows& x, int64_t first = 0);
  void add_update(LayerCall& c, const ParamView& p, const Rows& y) const;
  // Adds to dx, unless it is empty, and to the gradients in g whose tensors are not empty.
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Rows& dy,
                const Rows& x, int64_t first = 0) const;

  bool empty() const { return layers_.empty(); }
  bool have_dropout() const { return !empty() && layers_.front().dropout > 0; }
  int64_t ranks() const { return ranks_; }  // sum of the ranks of all layers
  // The joined a of all layers, (ranks, in).
  Tensor a(const ParamView& p) const { return p.joined(a_); }
  // to (out, ranks) = the b of the layer whose outputs begin at column `column` of y, in the layer's own
  // columns, and zero in all others.
  void place_b(LayerCall& c, const ParamView& p, const Rows& to, int64_t column) const;

 private:
  struct Layer {
    int64_t column, out;  // columns of the layer in y
    int64_t first, rank;  // part of the layer in u
    float scale, dropout;
    std::string random;  // name of the layer's random numbers
    ParamId b;

    Tensor rows_of(const Tensor& a) const { return a.slice(first, first + rank); }
    Rows columns_of(const Rows& y) const { return y.columns(column, out); }
  };
  // u or du, as (ranks, N), or transposed in spare columns.
  struct Projection {
    Rows rows;
    bool transposed = false;

    Projection of(const Layer& layer) const;
  };
  bool drops(const LayerCall& c) const;
  // The spare columns of x or dy if it has some, or a tensor from the arena.
  Projection projection(LayerCall& c, Arena& arena, const Rows& x) const;
  Tensor dropped(LayerCall& c, const Layer& layer, const Rows& x, int64_t first) const;
  void backward_b(LayerCall& c, const GradView& g, const Layer& layer, const Rows& dy) const;
  void backward_u(LayerCall& c, const ParamView& p, const Layer& layer, const Projection& du,
                  const Rows& dy) const;

  std::vector<Layer> layers_;
  std::vector<ParamId> a_;
  int64_t ranks_ = 0;
  bool one_scale_ = true;
  Projection u_{};
};

}  // namespace flatshard
