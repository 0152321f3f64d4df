#include "model/weight.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/four_bit_product.h"
#include "runtime/memory.h"

namespace flatshard {

bool DenseWeight::is_one_matrix() const {
  return std::all_of(ids_.begin() + 1, ids_.end(), [&](ParamId id) { return (*params_)[id].joined; });
}

void DenseWeight::multiply(LayerCall& c, const ParamView& p, Product product) const {
  product.b = p.joined(ids_);
  product.transpose_b = product.transpose_b != transposed_;
  gemm(c, product);
}

void DenseWeight::backward(LayerCall& c, const GradView& g, const Rows& dy, const Rows& x) const {
  const Tensor dw = g.joined(ids_);
  if (dw.empty()) return;
  gemm(c, {.c = dw,
           .a = transposed_ ? x : dy,
           .b = transposed_ ? dy : x,
           .transpose_a = true,
           .accumulate = g.accumulates(ids_)});
}

void DenseWeight::write(LayerCall& c, const ParamView& p, const Rows& to) const {
  cast(c.stream, {.y = to.values(), .x = p.joined(ids_), .y_stride = to.stride()});
}

void QuantizedWeight::multiply(LayerCall& c, const ParamView& p, Product product) const {
  std::vector<FourBitMatrix> w;
  for (const QuantizedParams& layer : layers_) w.push_back(layer.matrix(p));
  four_bit_product(c.stream, c.scratch,
                   {.c = product.c.values(),
                    .a = product.a.values(),
                    .w = std::move(w),
                    .bias = product.bias,
                    .addend = product.addend.values(),
                    .transpose_w = product.transpose_b,
                    .accumulate = product.accumulate,
                    .compute = compute(),
                    .tf32 = c.tf32,
                    .a_stride = product.a.stride(),
                    .c_stride = product.c.stride()});
  run(c.stream, product.end);
}

void QuantizedWeight::write(LayerCall& c, const ParamView& p, const Rows& to) const {
  int64_t row = 0;
  for (const QuantizedParams& layer : layers_) {
    const FourBitMatrix w = layer.matrix(p);
    const Rows rows = to.slice(row, row + w.shape[0]);
    dequantize_four_bit(c.stream, {.y = rows.values(), .w = w, .y_stride = rows.stride()});
    row += w.shape[0];
  }
}

void multiply_extended(LayerCall& c, const ParamView& p, const Weight& w,
                       std::span<const LayerColumns> layers, const LayerAdapters& adapters, Product product) {
  const ArenaScope scope(c.scratch);
  const int64_t ranks = adapters.ranks(), columns = product.a.width;
  product.a.width += ranks;
  if (!product.transpose_b) {
    const Tensor wide = c.scratch.alloc(c.dtype, {columns + ranks, product.c.width});
    w.write(c, p, wide.slice(0, columns));
    copy(c.stream, wide.slice(columns, columns + ranks), adapters.a(p));
    product.b = wide;
    return gemm(c, product);
  }
  const Rows wide = c.scratch.alloc(c.dtype, {product.c.width, product.a.stride()});
  w.write(c, p, wide.columns(0, columns));
  for (const LayerColumns& layer : layers) {
    const int64_t row = layer.begin - layers.front().begin;
    adapters.place_b(c, p, wide.slice(row, row + layer.size).columns(columns, ranks), layer.begin);
  }
  product.b = wide.columns(0, columns + ranks);
  gemm(c, product);
}

}  // namespace flatshard
