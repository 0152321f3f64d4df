#pragma once
// Linear layers that read the same input, for example q, k and v: y_i = x w_i^T + b_i, side by side in each
// row of y (kernels/packed.h). A weight is stored as (out, in), or transposed as (in, out) in GPT-2. A layer
// that the model's config quantizes has a 4-bit weight instead (quantization.h), and a layer for which the
// config has an adapter adds the adapter's update (adapter.h).
//
// Weights that are joined in memory (ParamSpec) are one matrix (weight.h): y, dx and dw are then one product
// each, instead of one for each layer. 4-bit weights of one format are multiplied as one matrix if
// unquantized weights would be joined.
//
// On a GPU an adapter's update of y would read and write all of y again, and its update of dx all of dx. If x
// and dy have spare columns, the updates are part of the product instead, which sums over a few more columns:
//   y = [x | u] [w | b]^T      dx = [dy | du] [w ; a]
// u and du are in the spare columns (adapter.h). The other operand is built in scratch for each product. A
// 4-bit w is decoded there in any case; any other w is copied, which pays off for many rows. Rows with spare
// columns begin at multiples of 128 bytes, like other rows, and [x | u] ends with u: the sum has no padding.
// Only this class decides on spare columns: input() and output() return rows of the width that callers see.

#include <memory>
#include <string>
#include <vector>

#include "model/adapter.h"
#include "model/config.h"
#include "model/layer_call.h"
#include "model/rows.h"
#include "model/weight.h"
#include "runtime/param.h"

namespace flatshard {

struct LinearSpec {
  std::string path;  // the parameters are path.weight and, with a bias, path.bias
  int64_t in, out;
  bool bias = false;
  bool transposed = false;  // the weight is (in, out)
  float init_std = 0.02f;   // standard deviation of the initial weights
};

// The standard deviation of the initial weights of a layer whose output is added to the residual stream.
float init_std_to_stream(const ModelConfig& config);

class Linear {
 public:
  Linear() = default;
  // `params` must outlive the object: only once parameters are selected (param_selection.h) is it known
  // whether parameters are joined.
  Linear(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& layers);

  // Memory for x (N, in), and for y or dy (N, width of all outputs), with which adapters cause the least
  // traffic. The elements between rows are a multiple of `multiple`, which divides the width; 0: rows are
  // contiguous.
  Rows input(const LayerCall& c, Arena& arena, int64_t N, int64_t multiple = 1) const;
  Rows output(const LayerCall& c, Arena& arena, int64_t N, int64_t multiple = 1) const;

  // y = x w^T + b, plus an addend like y, if there is one. The forward and the backward pass must get the
  // same x; there is no addend if y is from output(). x, y and dy may be any other memory whose rows are
  // contiguous. Then `end` is run, by the last product if nothing comes after it.
  void forward(LayerCall& c, const ParamView& p, const Rows& y, const Rows& x, const Tensor& addend = {},
               const ProductEnd& end = {});
  // Must be called if x was computed again for the backward pass.
  void restore(LayerCall& c, const ParamView& p, const Rows& x);
  // Computes only what the backward pass needs besides x; called in place of forward() if y is not needed.
  void prepare(LayerCall& c, const ParamView& p, const Rows& x);
  // dx = dy w, or dx += dy w with accumulate, unless dx is empty. Computes the gradients in g whose tensors
  // are not empty. Then `end` is run, as in the forward pass.
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Rows& dy,
                const Rows& x, bool accumulate = false, const ProductEnd& end = {}) const;

 private:
  // Layers [begin, end), whose weights or biases are one matrix.
  struct Run {
    size_t begin, end;
  };
  void declare_weights(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& specs);
  void declare_biases(ParamList& params, const std::vector<LinearSpec>& specs);
  bool are_one_matrix() const { return joined_ && joined_->is_one_matrix(); }
  bool have_one_bias() const;
  std::vector<Run> runs(bool as_one) const;
  const Weight& weight(Run run) const;
  std::span<const ParamId> biases(Run run) const;
  Rows columns(const Rows& y, Run run) const;
  void multiply(LayerCall& c, const ParamView& p, Run run, bool with_adapters, const Product& product) const;
  // The number of spare columns that adapters can use in N rows of x, and of y and dy; 0: none.
  int64_t spare_of_x(const LayerCall& c, int64_t N) const;
  int64_t spare_of_y(const LayerCall& c, int64_t N) const;
  int64_t spare_columns(const LayerCall& c, bool pay) const;
  // dy, or a copy of it with spare columns if that costs less than passes over dx.
  Rows with_spare_columns(LayerCall& c, const Rows& dy, bool wants_dx) const;

  const ParamList* params_ = nullptr;
  int64_t in_ = 0, width_ = 0;
  std::vector<LayerColumns> layers_;
  std::vector<std::shared_ptr<const Weight>> weights_;  // one for each layer
  std::shared_ptr<const Weight> joined_;                // of all layers; null if they cannot be joined
  std::vector<ParamId> b_;                              // one for each layer, or none
  LayerAdapters adapters_;
};

}  // namespace flatshard
