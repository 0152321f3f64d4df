#include "model/expert_matrices.h"

#include <utility>

#include "kernels/gather_rows.h"
#include "model/rows.h"

namespace flatshard {

ExpertMatrices::ExpertMatrices(std::vector<ParamId> ids, const Shape& shape, int64_t between, bool transposed)
    : ids_(std::move(ids)), shape_(shape), between_(between), transposed_(transposed) {}

ExpertMatrices::ExpertMatrices(std::vector<QuantizedParams> parts, const Shape& shape, bool transposed)
    : parts_(std::move(parts)), shape_(shape), transposed_(transposed) {}

void ExpertMatrices::multiply(LayerCall& c, const ParamView& p, GroupedProduct product) const {
  const ArenaScope scope(c.scratch);
  product.b = parts_.empty() ? matrices(p) : decoded(c, p);
  product.between = between_;
  if (transposed_) {
    product.transpose_b = !product.transpose_b;
    if (product.used.empty()) product.used = product.rows;
    product.a = gathered(c, product.a, product.a_stride, std::exchange(product.rows, {}));
  }
  grouped_product(c.stream, c.scratch, product);
}

// The rows of tokens side by side; x if it has them already.
Tensor ExpertMatrices::gathered(LayerCall& c, const Tensor& x, int64_t stride, const Tensor& rows) {
  if (rows.empty()) return x;
  const Tensor copy = c.scratch.alloc(x.dtype, {rows.size(), x.shape[1]});
  gather_rows(c.stream, {.y = copy, .x = x, .index = rows, .x_stride = stride});
  return copy;
}

void ExpertMatrices::add_gradient(LayerCall& c, const GradView& g, GroupedProduct product) const {
  if (ids_.empty() || g[ids_.front()].empty()) return;
  const ArenaScope scope(c.scratch);
  if (transposed_) {
    const Tensor dy = std::exchange(product.a, gathered(c, product.b, product.b_stride, product.rows));
    product.b = dy;
    if (product.used.empty()) product.used = product.rows;
    product.rows = {};
  }
  product.c = all(g[ids_.front()]);
  product.transpose_a = true;
  product.accumulate = g.accumulates(ids_);
  product.between = between_;
  grouped_product(c.stream, c.scratch, product);
}

Tensor ExpertMatrices::all(const Tensor& first) const {
  Tensor matrices = first;
  matrices.shape = shape_;
  return matrices;
}

Tensor ExpertMatrices::matrices(const ParamView& p) const {
  const int64_t experts = shape_[0];
  const Tensor &first = p[ids_.front()],
               &last = p[ids_[ids_.size() - ids_.size() / static_cast<size_t>(experts)]];
  check(!first.data ||
            static_cast<char*>(first.data) + (experts - 1) * between_ * size_of(first.dtype) == last.data,
        "the experts of a block do not follow one another in memory");
  return all(first);
}

Tensor ExpertMatrices::decoded(LayerCall& c, const ParamView& p) const {
  const DType compute = parts_.front().format().compute.value_or(c.dtype);
  check(compute == c.dtype, "quant.compute is ", compute, ", but experts are multiplied in the run's ",
        c.dtype, ": remove quant.compute, or name the same dtype");
  const Tensor copy = c.scratch.alloc(c.dtype, shape_);
  const Tensor rows = copy.view({shape_[0] * shape_[1], shape_[2]});
  int64_t row = 0;
  for (const QuantizedParams& part : parts_) {
    const FourBitMatrix w = part.matrix(p);
    dequantize_four_bit(c.stream, {.y = rows.slice(row, row + w.shape[0]), .w = w});
    row += w.shape[0];
  }
  return copy;
}

}  // namespace flatshard
