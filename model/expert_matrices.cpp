#include "model/expert_matrices.h"

#include <utility>

#include "model/rows.h"

namespace flatshard {

ExpertMatrices::ExpertMatrices(std::vector<ParamId> ids, const Shape& shape, int64_t between)
    : ids_(std::move(ids)), shape_(shape), between_(between) {}

ExpertMatrices::ExpertMatrices(std::vector<QuantizedParams> parts, const Shape& shape)
    : parts_(std::move(parts)), shape_(shape) {}

void ExpertMatrices::multiply(LayerCall& c, const ParamView& p, GroupedProduct product) const {
  const ArenaScope scope(c.scratch);
  product.b = parts_.empty() ? matrices(p) : decoded(c, p);
  product.between = between_;
  grouped_product(c.stream, c.scratch, product);
}

void ExpertMatrices::add_gradient(LayerCall& c, const GradView& g, GroupedProduct product) const {
  if (ids_.empty() || g[ids_.front()].empty()) return;
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
