#include "model/adapter.h"

#include <cmath>

#include "kernels/dropout.h"
#include "kernels/gemm.h"

namespace flatshard {
namespace {

Init initial_a(const AdaptedLayer& layer) {
  if (layer.adapter.gaussian) return Init::normal(1.0f / static_cast<float>(layer.adapter.rank));
  return Init::uniform(1.0f / std::sqrt(static_cast<float>(layer.in)));
}

}  // namespace

LayerAdapters::LayerAdapters(ParamList& params, std::vector<AdaptedLayer> layers) {
  int64_t ranks = 0;
  for (const AdaptedLayer& layer : layers) {
    const Adapter& adapter = layer.adapter;
    a_.push_back(params.add({.name = layer.path + ".lora_A.weight",
                             .shape = {adapter.rank, layer.in},
                             .init = initial_a(layer),
                             .role = ParamRole::adapter,
                             .joined = !a_.empty()}));
    layers_.push_back({.column = layer.column,
                       .out = layer.out,
                       .first = ranks,
                       .rank = adapter.rank,
                       .scale = adapter.scale,
                       .dropout = adapter.dropout,
                       .random = layer.path + ".lora_dropout",
                       .b = {}});
    ranks += adapter.rank;
  }
  for (size_t i = 0; i < layers.size(); ++i)
    layers_[i].b = params.add({.name = layers[i].path + ".lora_B.weight",
                               .shape = {layers[i].out, layers[i].adapter.rank},
                               .init = Init::constant(0),
                               .role = ParamRole::adapter});
}

// All layers of a model have the same probability.
bool LayerAdapters::drops(const Context& c) const { return c.dropout && layers_.front().dropout > 0; }

void LayerAdapters::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, int64_t first) {
  if (layers_.empty()) return;
  const Tensor a = p.joined(a_);
  u_ = c.saved.alloc(c.dtype, {a.shape[0], x.shape[0]});
  if (!drops(c)) gemm(c.stream, c.scratch, {.c = u_, .a = a, .b = x, .transpose_b = true, .tf32 = c.tf32});
  for (const Layer& layer : layers_) {
    const Tensor u = layer.rows_of(u_);
    if (drops(c)) {
      const ArenaScope scope(c.scratch);
      const Tensor dropped = c.scratch.alloc(c.dtype, x.shape);
      dropout_forward(c.stream, {.y = dropped,
                                 .x = x,
                                 .p = layer.dropout,
                                 .random = RandomStream(c.dropout->seed, layer.random, c.dropout->step),
                                 .first = first * x.shape[1]});
      gemm(c.stream, c.scratch,
           {.c = u, .a = layer.rows_of(a), .b = dropped, .transpose_b = true, .tf32 = c.tf32});
    }
    gemm(c.stream, c.scratch,
         {.c = layer.columns_of(y),
          .a = u,
          .b = p[layer.b],
          .transpose_a = true,
          .transpose_b = true,
          .accumulate = true,
          .alpha = layer.scale,
          .tf32 = c.tf32,
          .c_stride = y.shape[1]});
  }
}

void LayerAdapters::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                             const Tensor& dy, const Tensor& x, int64_t first) const {
  if (layers_.empty()) return;
  const ArenaScope scope(c.scratch);
  const Tensor a = p.joined(a_), da = g.joined(a_), du = c.scratch.alloc(c.dtype, u_.shape);
  for (const Layer& layer : layers_) {
    const Tensor dy_of_layer = layer.columns_of(dy);
    if (!g[layer.b].empty())
      gemm(c.stream, c.scratch,
           {.c = g[layer.b],
            .a = dy_of_layer,
            .b = layer.rows_of(u_),
            .transpose_a = true,
            .transpose_b = true,
            .accumulate = g.accumulates(layer.b),
            .alpha = layer.scale,
            .tf32 = c.tf32,
            .a_stride = dy.shape[1]});
    gemm(c.stream, c.scratch,
         {.c = layer.rows_of(du),
          .a = p[layer.b],
          .b = dy_of_layer,
          .transpose_a = true,
          .transpose_b = true,
          .alpha = layer.scale,
          .tf32 = c.tf32,
          .b_stride = dy.shape[1]});
  }
  const bool adds_to_da = g.accumulates(a_);
  const auto add_products = [&](const Tensor& to_da, const Tensor& to_dx, bool adds, const Tensor& of_u,
                                const Tensor& of_a, const Tensor& input) {
    if (!to_da.empty())
      gemm(c.stream, c.scratch,
           {.c = to_da, .a = of_u, .b = input, .accumulate = adds_to_da, .tf32 = c.tf32});
    if (!to_dx.empty())
      gemm(c.stream, c.scratch,
           {.c = to_dx, .a = of_u, .b = of_a, .transpose_a = true, .accumulate = adds, .tf32 = c.tf32});
  };
  if (!drops(c)) return add_products(da, dx, true, du, a, x);
  const Tensor dropped = c.scratch.alloc(c.dtype, x.shape);
  for (const Layer& layer : layers_) {
    const RandomStream random(c.dropout->seed, layer.random, c.dropout->step);
    dropout_forward(
        c.stream, {.y = dropped, .x = x, .p = layer.dropout, .random = random, .first = first * x.shape[1]});
    // The dropped input is dead once da is computed, so its gradient takes its place.
    add_products(da.empty() ? da : layer.rows_of(da), dx.empty() ? dx : dropped, false, layer.rows_of(du),
                 layer.rows_of(a), dropped);
    if (dx.empty()) continue;
    dropout_backward(c.stream, {.dx = dx,
                                .dy = dropped,
                                .p = layer.dropout,
                                .random = random,
                                .first = first * x.shape[1],
                                .accumulate_dx = true});
  }
}

}  // namespace flatshard
