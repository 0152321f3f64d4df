#include "model/adapter.h"

#include <algorithm>
#include <cmath>

#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

namespace flatshard {
namespace {

Init initial_a(const AdaptedLayer& layer) {
  if (layer.adapter.gaussian) return Init::normal(1.0f / static_cast<float>(layer.adapter.rank));
  return Init::uniform(1.0f / std::sqrt(static_cast<float>(layer.in)));
}

}  // namespace

LayerAdapters::LayerAdapters(ParamList& params, std::vector<AdaptedLayer> layers, int64_t width)
    : in_(layers.empty() ? 0 : layers.front().in), width_(width) {
  for (const AdaptedLayer& layer : layers) {
    const Adapter& adapter = layer.adapter;
    a_.push_back(params.add({.name = layer.path + ".lora_A.weight",
                             .shape = {adapter.rank, layer.in},
                             .init = initial_a(layer),
                             .role = ParamRole::adapter,
                             .joined = !a_.empty()}));
    layers_.push_back({.column = layer.column,
                       .out = layer.out,
                       .first = ranks_,
                       .rank = adapter.rank,
                       .scale = adapter.scale,
                       .dropout = adapter.dropout,
                       .random = layer.path + ".lora_dropout",
                       .b = {}});
    ranks_ += adapter.rank;
  }
  for (size_t i = 0; i < layers.size(); ++i)
    layers_[i].b = params.add({.name = layers[i].path + ".lora_B.weight",
                               .shape = {layers[i].out, layers[i].adapter.rank},
                               .init = Init::constant(0),
                               .role = ParamRole::adapter});
}

LayerAdapters::Projection LayerAdapters::Projection::of(const Layer& layer) const {
  if (!is_transposed()) return {layer.rows_of(values)};
  Projection part = *this;
  part.values.shape = {values.shape[0], layer.rank};
  if (part.values.data)
    part.values.data = static_cast<char*>(part.values.data) + layer.first * size_of(values.dtype);
  return part;
}

LayerAdapters::Projection LayerAdapters::spare_columns(const Tensor& x, int64_t width) const {
  return {packed_columns(x, width, {x.shape[0], ranks_}), x.shape[1]};
}

// Returns whether dropout applies. All layers of a model have the same probability.
bool LayerAdapters::drops(const Context& c) const { return c.dropout && have_dropout(); }

Tensor LayerAdapters::dropped(Context& c, const Layer& layer, const Tensor& x, int64_t first) const {
  const Tensor y = c.scratch.alloc(c.dtype, {x.shape[0], in_});
  dropout_forward(c.stream, {.y = y,
                             .x = packed_columns(x, 0, y.shape),
                             .p = layer.dropout,
                             .random = RandomStream(c.dropout->seed, layer.random, c.dropout->step),
                             .first = first * in_,
                             .x_stride = x.shape[1]});
  return y;
}

void LayerAdapters::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, int64_t first) {
  if (layers_.empty()) return;
  project(c, p, x, first);
  add_update(c, p, y);
}

void LayerAdapters::project(Context& c, const ParamView& p, const Tensor& x, int64_t first) {
  if (x.shape[1] > in_) {
    u_ = spare_columns(x, in_);
    return project_into_spare_columns(c, p, x, first);
  }
  const Tensor all = a(p);
  u_ = {c.saved.alloc(c.dtype, {ranks_, x.shape[0]})};
  if (!drops(c))
    return gemm(c.stream, c.scratch, {.c = u_.values, .a = all, .b = x, .transpose_b = true, .tf32 = c.tf32});
  for (const Layer& layer : layers_) {
    const ArenaScope scope(c.scratch);
    gemm(c.stream, c.scratch,
         {.c = u_.of(layer).values,
          .a = layer.rows_of(all),
          .b = dropped(c, layer, x, first),
          .transpose_b = true,
          .tf32 = c.tf32});
  }
}

// Uses one product, unless layers differ in their masks or scales.
void LayerAdapters::project_into_spare_columns(Context& c, const ParamView& p, const Tensor& x,
                                               int64_t first) const {
  const Tensor all = a(p), own = packed_columns(x, 0, {x.shape[0], in_});
  const auto multiply = [&](const Projection& u, const Tensor& of_a, float scale, const Tensor& input,
                            int64_t stride) {
    gemm(c.stream, c.scratch,
         {.c = u.values,
          .a = input,
          .b = of_a,
          .transpose_b = true,
          .alpha = scale,
          .tf32 = c.tf32,
          .a_stride = stride,
          .c_stride = u.stride});
  };
  const float scale = layers_.front().scale;
  const bool one_scale =
      std::all_of(layers_.begin(), layers_.end(), [&](const Layer& layer) { return layer.scale == scale; });
  if (one_scale && !drops(c)) return multiply(u_, all, scale, own, x.shape[1]);
  for (const Layer& layer : layers_) {
    const ArenaScope scope(c.scratch);
    if (drops(c))
      multiply(u_.of(layer), layer.rows_of(all), layer.scale, dropped(c, layer, x, first), in_);
    else
      multiply(u_.of(layer), layer.rows_of(all), layer.scale, own, x.shape[1]);
  }
}

void LayerAdapters::add_update(Context& c, const ParamView& p, const Tensor& y) const {
  for (const Layer& layer : layers_)
    gemm(c.stream, c.scratch,
         {.c = layer.columns_of(y),
          .a = u_.of(layer).values,
          .b = p[layer.b],
          .transpose_a = true,
          .transpose_b = true,
          .accumulate = true,
          .alpha = layer.scale,
          .tf32 = c.tf32,
          .c_stride = y.shape[1]});
}

void LayerAdapters::place_b(Context& c, const ParamView& p, const Tensor& to, int64_t stride,
                            int64_t column) const {
  const auto layer = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const Layer& other) { return other.column == column; });
  if (layer != layers_.end())
    return place(c.stream, {.y = to, .x = p[layer->b], .first = layer->first, .y_stride = stride});
  const Tensor none{nullptr, to.dtype, {to.shape[0], 0}, to.device};
  place(c.stream, {.y = to, .x = none, .y_stride = stride});
}

void LayerAdapters::backward_b(Context& c, const GradView& g, const Layer& layer, const Tensor& dy) const {
  if (g[layer.b].empty()) return;
  const Projection u = u_.of(layer);  // includes the scale if it is in spare columns
  gemm(c.stream, c.scratch,
       {.c = g[layer.b],
        .a = layer.columns_of(dy),
        .b = u.values,
        .transpose_a = true,
        .transpose_b = !u.is_transposed(),
        .accumulate = g.accumulates(layer.b),
        .alpha = u.is_transposed() ? 1.0f : layer.scale,
        .tf32 = c.tf32,
        .a_stride = dy.shape[1],
        .b_stride = u.stride});
}

void LayerAdapters::backward_u(Context& c, const ParamView& p, const Layer& layer, const Projection& all,
                               const Tensor& dy) const {
  const Projection du = all.of(layer);
  Gemm product{.c = du.values, .a = {}, .b = {}, .alpha = layer.scale, .tf32 = c.tf32, .c_stride = du.stride};
  if (du.is_transposed()) {
    product.a = layer.columns_of(dy), product.a_stride = dy.shape[1];
    product.b = p[layer.b];
  } else {
    product.a = p[layer.b], product.b = layer.columns_of(dy), product.b_stride = dy.shape[1];
    product.transpose_a = product.transpose_b = true;
  }
  gemm(c.stream, c.scratch, product);
}

void LayerAdapters::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                             const Tensor& dy, const Tensor& x, int64_t first) const {
  if (layers_.empty()) return;
  const ArenaScope scope(c.scratch);
  const Tensor all = a(p), da = g.joined(a_);
  const Projection du = dy.shape[1] > width_ ? spare_columns(dy, width_)
                                             : Projection{c.scratch.alloc(c.dtype, {ranks_, x.shape[0]})};
  for (const Layer& layer : layers_) {
    backward_b(c, g, layer, dy);
    backward_u(c, p, layer, du, dy);
  }
  const bool adds_to_da = g.accumulates(a_);
  const auto add_products = [&](const Tensor& to_da, const Tensor& to_dx, bool adds, const Projection& of_u,
                                const Tensor& of_a, const Tensor& input, int64_t stride) {
    if (!to_da.empty())
      gemm(c.stream, c.scratch,
           {.c = to_da,
            .a = of_u.values,
            .b = input,
            .transpose_a = of_u.is_transposed(),
            .accumulate = adds_to_da,
            .tf32 = c.tf32,
            .a_stride = of_u.stride,
            .b_stride = stride});
    if (!to_dx.empty())
      gemm(c.stream, c.scratch,
           {.c = to_dx,
            .a = of_u.values,
            .b = of_a,
            .transpose_a = !of_u.is_transposed(),
            .accumulate = adds,
            .tf32 = c.tf32,
            .a_stride = of_u.stride});
  };
  if (!drops(c))
    return add_products(da, dx, true, du, all, packed_columns(x, 0, {x.shape[0], in_}), x.shape[1]);
  for (const Layer& layer : layers_) {
    const ArenaScope of_layer(c.scratch);
    const Tensor input = dropped(c, layer, x, first);
    // The dropped input is dead once da is computed, so its gradient takes its place.
    add_products(da.empty() ? da : layer.rows_of(da), dx.empty() ? dx : input, false, du.of(layer),
                 layer.rows_of(all), input, in_);
    if (dx.empty()) continue;
    dropout_backward(c.stream, {.dx = dx,
                                .dy = input,
                                .p = layer.dropout,
                                .random = RandomStream(c.dropout->seed, layer.random, c.dropout->step),
                                .first = first * in_,
                                .accumulate_dx = true});
  }
}

}  // namespace flatshard
