#include "model/expert_adapter.h"

#include <algorithm>

#include "model/adapter.h"
#include "model/names.h"

namespace flatshard {
namespace {

// The adapter of a layer of all experts, or none.
const Adapter* adapter_of(const ModelConfig& config, const ExpertLayer& layer) {
  const Adapter* of_first = nullptr;
  for (const std::string& path : layer.paths) {
    const auto found = config.adapters.find(path);
    const Adapter* const adapter = found == config.adapters.end() ? nullptr : &found->second;
    if (path == layer.paths.front()) of_first = adapter;
    const bool alike = adapter && of_first
                           ? adapter->rank == of_first->rank && adapter->scale == of_first->scale
                           : adapter == of_first;
    check(alike, "lora: all experts of a block have adapters of one rank and scale, or none: ", path, " and ",
          layer.paths.front(), " differ: check lora.targets, lora.rank_pattern and lora.alpha_pattern");
  }
  return of_first;
}

void check_adapter(const ModelConfig& config, const ExpertLayer& layer, const Adapter& adapter) {
  check(!param_names(config.family).joins_experts, "lora.targets: ", layer.paths.front(),
        " cannot have an adapter: PEFT has no files for those of ", config.family,
        ": name layers of attention, or exclude it by lora.exclude");
  check(adapter.dropout == 0, "lora.dropout is ", adapter.dropout,
        ", must be 0 with adapters of experts, for which PEFT has no dropout");
}

}  // namespace

ExpertAdapter::ExpertAdapter(ParamList& params, const ModelConfig& config,
                             const std::vector<ExpertLayer>& layers, double share) {
  std::vector<std::pair<const ExpertLayer*, const Adapter*>> adapted;
  for (const ExpertLayer& layer : layers)
    if (const Adapter* const adapter = adapter_of(config, layer)) {
      check_adapter(config, layer, *adapter);
      adapted.emplace_back(&layer, adapter);
    }
  check(adapted.empty() || adapted.size() == layers.size(), "lora.targets: ", layers.front().paths.front(),
        " and ", layers.back().paths.front(),
        " must both have an adapter, or neither: in PEFT they are one tensor");
  if (adapted.empty()) return;
  const auto experts = std::ssize(layers.front().paths);
  const auto add = [&](std::vector<ParamId>& ids, const std::string& name, const Shape& shape,
                       const Init& init) {
    ids.push_back(params.add({.name = name,
                              .shape = shape,
                              .init = init,
                              .role = ParamRole::adapter,
                              .joined = !ids.empty(),
                              .share = share}));
  };
  std::vector<ParamId> a;
  for (const auto& [layer, adapter] : adapted) ranks_ += adapter->rank;
  for (int64_t e = 0; e < experts; ++e)
    for (const auto& [layer, adapter] : adapted)
      add(a, layer->paths[static_cast<size_t>(e)] + ".lora_A.weight", {adapter->rank, layer->in},
          initial_a(*adapter, layer->in));
  a_ = ExpertMatrices(a, {experts, ranks_, layers.front().in}, ranks_ * layers.front().in);
  int64_t first = 0;
  for (const auto& [layer, adapter] : adapted) {
    const int64_t rank = adapter->rank;
    std::vector<ParamId> b;
    for (const std::string& path : layer->paths)
      add(b, path + ".lora_B.weight", {layer->out, rank}, Init::constant(0));
    layers_.push_back({.column = layer->column,
                       .out = layer->out,
                       .first = first,
                       .rank = rank,
                       .scale = adapter->scale,
                       .b = ExpertMatrices(b, {experts, layer->out, rank}, layer->out * rank)});
    first += rank;
  }
}

Tensor ExpertAdapter::project(LayerCall& c, const ParamView& p, const Tensor& x,
                              const ExpertSegments& s) const {
  const int64_t R = s.rows.empty() ? x.shape[0] : s.rows.size();
  const Tensor u = c.scratch.alloc(c.dtype, {R, ranks_});
  a_.multiply(
      c, p,
      {.c = u, .a = x, .offsets = s.offsets, .rows = s.rows, .transpose_b = true, .most_rows = s.most_rows});
  return u;
}

void ExpertAdapter::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x,
                            const ExpertSegments& s) const {
  if (empty()) return;
  const ArenaScope scope(c.scratch);
  const Tensor u = project(c, p, x, s);
  for (const Layer& layer : layers_)
    layer.b.multiply(c, p,
                     {.c = layer.columns_of(y),
                      .a = layer.part_of(u),
                      .offsets = s.offsets,
                      .transpose_b = true,
                      .accumulate = true,
                      .alpha = layer.scale,
                      .most_rows = s.most_rows,
                      .a_stride = ranks_,
                      .c_stride = y.shape[1]});
}

Tensor ExpertAdapter::backward(LayerCall& c, const ParamView& p, const Tensor& dx, const Tensor& dy,
                               const ExpertSegments& s) const {
  if (empty()) return {};
  const Tensor du = c.scratch.alloc(c.dtype, {dy.shape[0], ranks_});
  for (const Layer& layer : layers_)
    layer.b.multiply(c, p,
                     {.c = layer.part_of(du),
                      .a = layer.columns_of(dy),
                      .offsets = s.offsets,
                      .alpha = layer.scale,
                      .a_stride = dy.shape[1],
                      .c_stride = ranks_});
  if (!dx.empty()) a_.multiply(c, p, {.c = dx, .a = du, .offsets = s.offsets, .accumulate = true});
  return du;
}

void ExpertAdapter::add_gradients(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& du,
                                  const Tensor& dy, const Tensor& x, const ExpertSegments& s) const {
  if (empty()) return;
  const ArenaScope scope(c.scratch);
  a_.add_gradient(c, g, {.a = du, .b = x, .offsets = s.offsets, .rows = s.rows});
  const Tensor u = project(c, p, x, s);
  for (const Layer& layer : layers_)
    layer.b.add_gradient(c, g,
                         {.a = layer.columns_of(dy),
                          .b = layer.part_of(u),
                          .offsets = s.offsets,
                          .alpha = layer.scale,
                          .a_stride = dy.shape[1],
                          .b_stride = ranks_});
}

}  // namespace flatshard
