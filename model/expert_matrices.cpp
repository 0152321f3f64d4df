#include "model/expert_matrices.h"

#include <utility>

#include "kernels/gather_rows.h"
#include "kernels/transpose.h"
#include "model/expert_exchange.h"
#include "model/rows.h"

namespace flatshard {

ExpertMatrices::ExpertMatrices(std::vector<ParamId> ids, const Shape& shape, int64_t between, bool transposed)
    : ids_(std::move(ids)), shape_(shape), between_(between), transposed_(transposed) {}

ExpertMatrices::ExpertMatrices(ParamId all, const Shape& shape, bool last)
    : ids_{all}, shape_(shape), last_(last) {}

ExpertMatrices::ExpertMatrices(std::vector<QuantizedParams> parts, const Shape& shape, bool transposed)
    : parts_(std::move(parts)), shape_(shape), transposed_(transposed) {}

void ExpertMatrices::multiply(LayerCall& c, const ParamView& p, GroupedProduct product) const {
  const ArenaScope scope(c.scratch);
  product.b = parts_.empty() ? matrices(c, p) : decoded(c, p);
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
  if (ids_.empty()) return;
  const Experts experts = here(c);
  const std::span<const ParamId> ids = ids_of(experts);
  const Tensor& dw = g[ids.front()];
  if (dw.empty()) return;
  const ArenaScope scope(c.scratch);
  if (transposed_) {
    const Tensor dy = std::exchange(product.a, gathered(c, product.b, product.b_stride, product.rows));
    product.b = dy;
    if (product.used.empty()) product.used = product.rows;
    product.rows = {};
  }
  product.transpose_a = true;
  product.accumulate = g.accumulates(ids);
  product.between = between_;
  product.c = last_ ? c.scratch.alloc(dw.dtype, shape_) : from(dw, experts.count);
  if (last_ && product.accumulate) transpose(c.stream, {.y = by_expert(product.c), .x = by_place(dw)});
  grouped_product(c.stream, c.scratch, product);
  if (last_) transpose(c.stream, {.y = by_place(dw), .x = by_expert(product.c)});
}

ExpertMatrices::Experts ExpertMatrices::here(const LayerCall& c) const {
  if (!c.expert_exchange) return {0, shape_[0]};
  const int64_t count = shape_[0] / c.expert_exchange->size();
  return {c.expert_exchange->place() * count, count};
}

std::span<const ParamId> ExpertMatrices::ids_of(Experts experts) const {
  const auto at = [&](int64_t expert) {
    return static_cast<size_t>(expert) * ids_.size() / static_cast<size_t>(shape_[0]);
  };
  return std::span(ids_).subspan(at(experts.first), at(experts.count));
}

// The matrices of so many experts, of which `first` is the first one's.
Tensor ExpertMatrices::from(const Tensor& first, int64_t count) const {
  Tensor matrices = first;
  matrices.shape = {count, shape_[1], shape_[2]};
  return matrices;
}

Tensor ExpertMatrices::matrices(LayerCall& c, const ParamView& p) const {
  const Experts experts = here(c);
  const std::span<const ParamId> ids = ids_of(experts);
  const Tensor& first = p[ids.front()];
  if (last_) {
    const Tensor turned = c.scratch.alloc(c.dtype, shape_);
    transpose(c.stream, {.y = by_expert(turned), .x = by_place(first)});
    return turned;
  }
  const int64_t of_each = std::ssize(ids) / experts.count;
  check(!first.data || of_each == 0 ||
            static_cast<char*>(first.data) + (experts.count - 1) * between_ * size_of(first.dtype) ==
                p[ids[static_cast<size_t>((experts.count - 1) * of_each)]].data,
        "the experts of a block do not follow one another in memory");
  return from(first, experts.count);
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
