#pragma once
// Linear layers that read the same input, for example q, k and v: y_i = x w_i^T + b_i, side by side in each
// row of y (kernels/packed.h). A weight is stored as (out, in), or transposed as (in, out) in GPT-2. A layer
// that the model's config quantizes has a 4-bit weight instead (quantization.h), and a layer for which the
// config has an adapter adds the adapter's update (adapter.h).
//
// Weights that are joined in memory (ParamSpec) are one matrix: y, dx and dw are then one product each,
// instead of one for each layer. 4-bit weights of one format are multiplied as one matrix if unquantized
// weights would be joined.
//
// On a GPU an adapter's update of y would read and write all of y again, and its update of dx all of dx. If x
// and dy have spare columns, the updates are part of the product instead, which sums over a few more columns:
//   y = [x | u] [w | b]^T      dx = [dy | du] [w ; a]
// u and du are in the spare columns (adapter.h). The other operand is built in scratch for each product. A
// 4-bit w is decoded there in any case; any other w is copied, which pays off for many rows. Rows with spare
// columns begin at multiples of 128 bytes, like other rows, and [x | u] ends with u: the sum has no padding.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/gemm.h"
#include "model/adapter.h"
#include "model/config.h"
#include "model/context.h"
#include "model/quantization.h"
#include "runtime/param.h"

namespace flatshard {

struct LinearSpec {
  std::string path;  // the parameters are path.weight and, with a bias, path.bias
  int64_t in, out;
  bool bias = false;
  bool transposed = false;  // the weight is (in, out)
  float init_std = 0.02f;   // standard deviation of the initial weights
};

class Linear {
 public:
  Linear() = default;
  // `params` must outlive the object: only once groups are applied (param_groups.h) is it known whether
  // parameters are joined.
  Linear(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& layers);

  int64_t width() const { return width_; }  // total width of all outputs
  // The number of spare columns that adapters can use in `rows` rows of x, and of y and dy; 0: none.
  int64_t spare_of_x(const Context& c, int64_t rows) const;
  int64_t spare_of_y(const Context& c, int64_t rows) const;

  // y = x w^T + b, plus an addend like y, if there is one. x is (N, in) and y is (N, width), each with or
  // without spare columns at the end. The forward and the backward pass must get the same x; there is no
  // addend if y has spare columns.
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, const Tensor& addend = {});
  // Writes the spare columns of x again, if x was computed again for the backward pass.
  void restore_spare_columns(Context& c, const ParamView& p, const Tensor& x);
  // dx = dy w, or dx += dy w with accumulate, unless dx is empty. Computes the gradients in g whose tensors
  // are not empty.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, bool accumulate = false) const;

 private:
  struct Layer {
    int64_t column, out;  // columns of the layer in y
    bool transposed;
    std::optional<QuantizedParams> quantized{};  // replaces the weight
  };
  // Layers [begin, end), whose weights are one matrix.
  struct Run {
    size_t begin, end;
  };
  void declare_weights(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& specs);
  void declare_biases(ParamList& params, const std::vector<LinearSpec>& specs);
  bool are_one_matrix() const;
  bool are_joined(const std::vector<ParamId>& ids) const;
  std::vector<Run> runs(bool joined) const;
  static std::span<const ParamId> ids_of(const std::vector<ParamId>& all, Run run);
  Tensor columns(const Tensor& y, Run run) const;
  // c = a w^T + b + addend, or with backward a w, added to c with accumulate.
  void multiply(Context& c, const ParamView& p, Run run, const Gemm& product, bool backward) const;
  // Like multiply(), with u or du in the columns after a.
  void multiply_with_adapters(Context& c, const ParamView& p, Run run, const Gemm& product,
                              bool backward) const;
  bool can_use_spare_columns(const Context& c) const;
  bool is_quantized() const;  // returns whether all layers are quantized
  // dy, or a copy of it with spare columns if that costs less than passes over dx.
  Tensor with_spare_columns(Context& c, const Tensor& dy, bool wants_dx) const;
  // w = the weights of a run. The rows of `w` are `stride` elements apart.
  void write_weights(Context& c, const ParamView& p, Run run, const Tensor& w, int64_t stride) const;

  const ParamList* params_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<ParamId> w_, b_;  // one for each layer; b_ is empty without biases
  bool one_quantized_ = false;
  int64_t in_ = 0, width_ = 0;
  LayerAdapters adapters_;
};

}  // namespace flatshard
