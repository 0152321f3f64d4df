#include "model/adapter.h"

#include <algorithm>
#include <cmath>

#include "kernels/dropout.h"
#include "kernels/elementwise.h"

namespace flatshard {

Init initial_a(const Adapter& adapter, int64_t in) {
  if (adapter.gaussian) return Init::normal(1.0f / static_cast<float>(adapter.rank));
  return Init::uniform(1.0f / std::sqrt(static_cast<float>(in)));
}

LayerAdapters::LayerAdapters(ParamList& params, const std::vector<AdaptedLayer>& layers) {
  for (const AdaptedLayer& layer : layers) {
    const Adapter& adapter = layer.adapter;
    a_.push_back(params.add({.name = layer.path + ".lora_A.weight",
                             .shape = {adapter.rank, layer.in},
                             .init = initial_a(adapter, layer.in),
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
    one_scale_ = one_scale_ && adapter.scale == layers_.front().scale;
  }
  for (size_t i = 0; i < layers.size(); ++i)
    layers_[i].b = params.add({.name = layers[i].path + ".lora_B.weight",
                               .shape = {layers[i].out, layers[i].adapter.rank},
                               .init = Init::constant(0),
                               .role = ParamRole::adapter});
}

LayerAdapters::Projection LayerAdapters::Projection::of(const Layer& layer) const {
  if (transposed) return {rows.columns(layer.first, layer.rank), true};
  return {rows.slice(layer.first, layer.first + layer.rank)};
}

LayerAdapters::Projection LayerAdapters::projection(LayerCall& c, Arena& arena, const Rows& x) const {
  if (x.stride() > x.width) return {x.columns(x.width, ranks_), true};
  return {arena.alloc(c.dtype, {ranks_, x.count()})};
}

// Returns whether dropout applies. All layers of a model have the same probability.
bool LayerAdapters::drops(const LayerCall& c) const { return c.dropout && have_dropout(); }

Tensor LayerAdapters::dropped(LayerCall& c, const Layer& layer, const Rows& x, int64_t first) const {
  const Tensor y = c.scratch.alloc(c.dtype, {x.count(), x.width});
  dropout_forward(c.stream, {.out = y,
                             .in = x.values(),
                             .p = layer.dropout,
                             .random = RandomStream(c.dropout->seed, layer.random, c.dropout->step),
                             .first = first * x.width,
                             .in_stride = x.stride()});
  return y;
}

void LayerAdapters::forward(LayerCall& c, const ParamView& p, const Rows& y, const Rows& x, int64_t first) {
  if (empty()) return;
  project(c, p, x, first);
  add_update(c, p, y);
}

// Uses one product, unless layers differ in their masks, or in scales that u includes.
void LayerAdapters::project(LayerCall& c, const ParamView& p, const Rows& x, int64_t first) {
  if (empty()) return;
  u_ = projection(c, c.saved, x);
  const Tensor all = a(p);
  const auto multiply = [&](const Projection& u, const Tensor& of_a, float scale, const Rows& input) {
    if (u.transposed)
      return gemm(c, {.c = u.rows, .a = input, .b = of_a, .transpose_b = true, .alpha = scale});
    gemm(c, {.c = u.rows, .a = of_a, .b = input, .transpose_b = true});
  };
  if (!drops(c) && (one_scale_ || !u_.transposed)) return multiply(u_, all, layers_.front().scale, x);
  for (const Layer& layer : layers_) {
    const ArenaScope scope(c.scratch);
    multiply(u_.of(layer), layer.rows_of(all), layer.scale, drops(c) ? Rows(dropped(c, layer, x, first)) : x);
  }
}

void LayerAdapters::add_update(LayerCall& c, const ParamView& p, const Rows& y) const {
  if (u_.transposed) return;
  for (const Layer& layer : layers_)
    gemm(c, {.c = layer.columns_of(y),
             .a = u_.of(layer).rows,
             .b = p[layer.b],
             .transpose_a = true,
             .transpose_b = true,
             .accumulate = true,
             .alpha = layer.scale});
}

void LayerAdapters::place_b(LayerCall& c, const ParamView& p, const Rows& to, int64_t column) const {
  const auto layer = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const Layer& other) { return other.column == column; });
  if (layer != layers_.end())
    return place(c.stream,
                 {.y = to.values(), .x = p[layer->b], .first = layer->first, .y_stride = to.stride()});
  const Tensor none{nullptr, to.of.dtype, {to.count(), 0}, to.of.device};
  place(c.stream, {.y = to.values(), .x = none, .y_stride = to.stride()});
}

void LayerAdapters::backward_b(LayerCall& c, const GradView& g, const Layer& layer, const Rows& dy) const {
  if (g[layer.b].empty()) return;
  const Projection u = u_.of(layer);  // includes the scale if it is in spare columns
  gemm(c, {.c = g[layer.b],
           .a = layer.columns_of(dy),
           .b = u.rows,
           .transpose_a = true,
           .transpose_b = !u.transposed,
           .accumulate = g.accumulates(layer.b),
           .alpha = u.transposed ? 1.0f : layer.scale});
}

void LayerAdapters::backward_u(LayerCall& c, const ParamView& p, const Layer& layer, const Projection& all,
                               const Rows& dy) const {
  const Projection du = all.of(layer);
  const Rows own = layer.columns_of(dy);
  if (du.transposed) return gemm(c, {.c = du.rows, .a = own, .b = p[layer.b], .alpha = layer.scale});
  gemm(c, {.c = du.rows,
           .a = p[layer.b],
           .b = own,
           .transpose_a = true,
           .transpose_b = true,
           .alpha = layer.scale});
}

void LayerAdapters::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                             const Rows& dy, const Rows& x, int64_t first) const {
  if (empty()) return;
  const ArenaScope scope(c.scratch);
  const Tensor all = a(p), da = g.joined(a_);
  const Projection du = projection(c, c.scratch, dy);
  for (const Layer& layer : layers_) {
    backward_b(c, g, layer, dy);
    backward_u(c, p, layer, du, dy);
  }
  const bool adds_to_da = g.accumulates(a_);
  const auto add_products = [&](const Tensor& to_da, const Tensor& to_dx, bool adds, const Projection& of_u,
                                const Tensor& of_a, const Rows& input) {
    if (!to_da.empty())
      gemm(
          c,
          {.c = to_da, .a = of_u.rows, .b = input, .transpose_a = of_u.transposed, .accumulate = adds_to_da});
    if (!to_dx.empty())
      gemm(c, {.c = to_dx, .a = of_u.rows, .b = of_a, .transpose_a = !of_u.transposed, .accumulate = adds});
  };
  if (!drops(c)) return add_products(da, dx, true, du, all, x);
  for (const Layer& layer : layers_) {
    const ArenaScope of_layer(c.scratch);
    const Tensor input = dropped(c, layer, x, first);
    // The dropped input is dead once da is computed, so its gradient takes its place.
    add_products(da.empty() ? da : layer.rows_of(da), dx.empty() ? dx : input, false, du.of(layer),
                 layer.rows_of(all), input);
    if (dx.empty()) continue;
    dropout_backward(c.stream, {.out = dx,
                                .in = input,
                                .p = layer.dropout,
                                .random = RandomStream(c.dropout->seed, layer.random, c.dropout->step),
                                .first = first * x.width,
                                .accumulate = true});
  }
}

}  // namespace flatshard
