#pragma once
// The adapters of linear layers that read the same input (lora.h). y already contains the layers' own
// outputs:
//   u = a dropout(x)^T      y_i += scale_i u_i^T b_i^T      y_i: columns of y (kernels/packed.h)
// The a of all layers are joined into one matrix, so u (ranks, N) is one product, and so are da and the
// update of dx. With dropout, each layer has its own mask and its own products.
//
// If x has spare columns (linear.h), they contain u^T, multiplied by the scale; if dy has spare columns, they
// contain du^T.
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
  int64_t column;  // first column of the layer in y and dy
  std::string path;
  int64_t in, out;
  Adapter adapter;
};

class LayerAdapters {
 public:
  LayerAdapters() = default;
  // Declares path.lora_A.weight of all layers, then path.lora_B.weight. `width` is the width of y.
  LayerAdapters(ParamList& params, std::vector<AdaptedLayer> layers, int64_t width);

  // x are the rows of a larger input from `first` on; `first` determines the masks of dropout.
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, int64_t first = 0);
  // The two parts of forward(): project() computes u, add_update() adds the update to y.
  void project(Context& c, const ParamView& p, const Tensor& x, int64_t first = 0);
  void add_update(Context& c, const ParamView& p, const Tensor& y) const;
  // Adds to dx, unless it is empty, and to the gradients in g whose tensors are not empty.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, int64_t first = 0) const;

  bool empty() const { return layers_.empty(); }
  bool have_dropout() const { return !empty() && layers_.front().dropout > 0; }
  int64_t ranks() const { return ranks_; }  // sum of the ranks of all layers
  // The joined a of all layers, (ranks, in).
  Tensor a(const ParamView& p) const { return p.joined(a_); }
  // to (out, ranks) = the b of the layer whose outputs begin at column `column` of y, in the layer's own
  // columns, and zero in all others. The rows of `to` are `stride` elements apart.
  void place_b(Context& c, const ParamView& p, const Tensor& to, int64_t stride, int64_t column) const;

 private:
  struct Layer {
    int64_t column, out;  // columns of the layer in y
    int64_t first, rank;  // part of the layer in u
    float scale, dropout;
    std::string random;  // name of the layer's random numbers
    ParamId b;

    Tensor rows_of(const Tensor& a) const { return a.slice(first, first + rank); }
    Tensor columns_of(const Tensor& y) const { return packed_columns(y, column, {y.shape[0], out}); }
  };
  // u or du, as (ranks, N), or transposed in spare columns.
  struct Projection {
    Tensor values;
    int64_t stride = 0;  // elements between rows in spare columns; 0: it is (ranks, N)

    bool is_transposed() const { return stride > 0; }
    Projection of(const Layer& layer) const;
  };
  bool drops(const Context& c) const;
  // The columns of x or dy after the first `width`.
  Projection spare_columns(const Tensor& x, int64_t width) const;
  void project_into_spare_columns(Context& c, const ParamView& p, const Tensor& x, int64_t first) const;
  Tensor dropped(Context& c, const Layer& layer, const Tensor& x, int64_t first) const;
  void backward_b(Context& c, const GradView& g, const Layer& layer, const Tensor& dy) const;
  void backward_u(Context& c, const ParamView& p, const Layer& layer, const Projection& du,
                  const Tensor& dy) const;

  std::vector<Layer> layers_;
  std::vector<ParamId> a_;
  int64_t in_ = 0, width_ = 0, ranks_ = 0;
  Projection u_{};
};

}  // namespace flatshard
