#pragma once
// A matrix for each expert of a mixture, or for each expert's adapter: parameters of one shape at equal
// distances in memory, parts of one parameter, or 4-bit weights, which are decoded into scratch for each
// product.

#include <span>
#include <vector>

#include "kernels/grouped_product.h"
#include "model/layer_call.h"
#include "model/quantization.h"
#include "runtime/param.h"

namespace flatshard {

class ExpertMatrices {
 public:
  ExpertMatrices() = default;
  // `ids` has the parameters of the first expert's matrix, one below the other, then those of the next
  // expert. The matrices have `rows` rows in all, and begin `between` elements apart. With `transposed` they
  // are stored as (in, out), and products gather rows of tokens before they multiply.
  ExpertMatrices(std::vector<ParamId> ids, const Shape& shape, int64_t between, bool transposed = false);
  // One parameter with the matrices of all experts, which follow one another. With `last` the index of the
  // expert is the last one instead: a parameter (rows, columns E), which is transposed into scratch for each
  // product, as is its gradient. `shape` is (experts, rows, columns).
  ExpertMatrices(ParamId all, const Shape& shape, bool last);
  // 4-bit weights in the order of the first constructor. `shape` is (experts, rows, columns).
  ExpertMatrices(std::vector<QuantizedParams> parts, const Shape& shape, bool transposed = false);

  // If experts are divided among ranks, both multiply segments of this rank's experts alone.
  //
  // Multiplies segments of rows with the matrices, which are (out, in) for the product. It lacks only b.
  void multiply(LayerCall& c, const ParamView& p, GroupedProduct product) const;
  // Adds the gradient, unless the matrices are frozen. The product lacks only c.
  void add_gradient(LayerCall& c, const GradView& g, GroupedProduct product) const;

 private:
  // The experts whose matrices this rank has.
  struct Experts {
    int64_t first, count;
  };
  Experts here(const LayerCall& c) const;
  // The parameters of these experts' matrices.
  std::span<const ParamId> ids_of(Experts experts) const;
  Tensor matrices(LayerCall& c, const ParamView& p) const;
  Tensor decoded(LayerCall& c, const ParamView& p) const;
  Tensor from(const Tensor& first, int64_t count) const;
  // The two layouts of a parameter whose last index is the expert.
  Tensor by_place(const Tensor& parameter) const {
    return parameter.view({shape_[1] * shape_[2], shape_[0]});
  }
  Tensor by_expert(const Tensor& matrices) const { return matrices.view({shape_[0], shape_[1] * shape_[2]}); }
  static Tensor gathered(LayerCall& c, const Tensor& x, int64_t stride, const Tensor& rows);

  std::vector<ParamId> ids_;
  std::vector<QuantizedParams> parts_;
  Shape shape_;
  int64_t between_ = 0;
  bool transposed_ = false;
  bool last_ = false;  // the index of the expert is the last one
};

}  // namespace flatshard
