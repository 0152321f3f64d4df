#pragma once
// The weight of a product in a linear layer: a matrix w (out, in), of one layer or of several layers below
// one another. Parameters in the compute dtype, 4-bit parameters (quantization.h), and either of them
// extended by adapters are multiplied in the same way.

#include <span>
#include <utility>
#include <vector>

#include "model/adapter.h"
#include "model/layer_call.h"
#include "model/quantization.h"
#include "model/rows.h"
#include "runtime/param.h"

namespace flatshard {

class Weight {
 public:
  virtual ~Weight() = default;
  // Returns false if the weights of several layers are not adjacent in memory (param_selection.h).
  virtual bool is_one_matrix() const = 0;
  // Multiplies with w, or with transpose_b with w^T. The product lacks only b.
  virtual void multiply(LayerCall& c, const ParamView& p, Product product) const = 0;
  // dw = dy^T x, unless the weight is frozen.
  virtual void backward(LayerCall& c, const GradView& g, const Rows& dy, const Rows& x) const = 0;
  // to (out, in) = w.
  virtual void write(LayerCall& c, const ParamView& p, const Rows& to) const = 0;
  // Returns whether products in this dtype should multiply with a copy that write() made. `pays` says whether
  // they save more traffic than the copy of a dense weight costs.
  virtual bool prefers_copy(DType dtype, bool pays) const = 0;
};

// w (out, in), or transposed as (in, out).
class DenseWeight : public Weight {
 public:
  // `params` must outlive the object: the selection determines later whether the parameters are adjacent.
  DenseWeight(const ParamList& params, std::vector<ParamId> ids, bool transposed)
      : params_(&params), ids_(std::move(ids)), transposed_(transposed) {}

  bool is_one_matrix() const override;
  void multiply(LayerCall& c, const ParamView& p, Product product) const override;
  void backward(LayerCall& c, const GradView& g, const Rows& dy, const Rows& x) const override;
  void write(LayerCall& c, const ParamView& p, const Rows& to) const override;
  bool prefers_copy(DType, bool pays) const override { return !transposed_ && pays; }

 private:
  const ParamList* params_;
  std::vector<ParamId> ids_;  // one for each layer
  bool transposed_;
};

// 4-bit weights of one format.
class QuantizedWeight : public Weight {
 public:
  explicit QuantizedWeight(std::vector<QuantizedParams> layers) : layers_(std::move(layers)) {}

  bool is_one_matrix() const override { return true; }
  void multiply(LayerCall& c, const ParamView& p, Product product) const override;
  void backward(LayerCall&, const GradView&, const Rows&, const Rows&) const override {}
  void write(LayerCall& c, const ParamView& p, const Rows& to) const override;
  bool prefers_copy(DType dtype, bool) const override { return compute().value_or(dtype) == dtype; }

 private:
  std::optional<DType> compute() const { return layers_.front().format().compute; }

  std::vector<QuantizedParams> layers_;
};

// The columns of a layer in y.
struct LayerColumns {
  int64_t begin, size;
};

// Multiplies with the weight of these layers extended by their adapters, which is built in scratch: with
// transpose_b y = [x | u] [w | b]^T, otherwise dx = [dy | du] [w ; a]. u or du is in the columns behind x or
// dy.
void multiply_extended(LayerCall& c, const ParamView& p, const Weight& w,
                       std::span<const LayerColumns> layers, const LayerAdapters& adapters, Product product);

}  // namespace flatshard
