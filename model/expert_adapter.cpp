#include "model/expert_adapter.h"

#include "model/adapter.h"

namespace flatshard {
namespace {

bool are_alike(const Adapter* a, const Adapter* b) {
  return a && b ? a->rank == b->rank && a->scale == b->scale : a == b;
}

// The adapter of a layer of all experts, or none.
const Adapter* adapter_of(const ModelConfig& config, const ExpertLayer& layer) {
  const auto find = [&](const std::string& path) {
    const auto found = config.adapters.find(path);
    return found == config.adapters.end() ? nullptr : &found->second;
  };
  const std::string& first = layer.paths.front();
  for (const std::string& path : layer.paths)
    check(are_alike(find(path), find(first)),
          "lora: all experts of a block have adapters of one rank and scale, or none: ", path, " and ", first,
          " differ: check lora.targets, lora.rank_pattern and lora.alpha_pattern");
  return find(first);
}

void check_dropout(const Adapter& adapter) {
  check(adapter.dropout == 0, "lora.dropout is ", adapter.dropout,
        ", must be 0 with adapters of experts, for which PEFT has no dropout");
}

}  // namespace

ExpertAdapter::ExpertAdapter(ParamList& params, const ModelConfig& config,
                             const std::vector<ExpertLayer>& layers, double share) {
  const Adapter* const adapter = adapter_of(config, layers.front());
  for (const ExpertLayer& layer : layers) {
    const Adapter* const other = adapter_of(config, layer);
    check(are_alike(adapter, other), "lora.targets: ", layers.front().paths.front(), " and ",
          layer.paths.front(),
          " must both have an adapter of one rank and scale, or neither: in PEFT they are one tensor");
  }
  if (!adapter) return;
  check_dropout(*adapter);
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
  const int64_t rank = adapter->rank, in = layers.front().in;
  std::vector<ParamId> a;
  for (size_t e = 0; e < static_cast<size_t>(experts); ++e)
    for (const ExpertLayer& layer : layers)
      add(a, layer.paths[e] + ".lora_A.weight", {rank, in}, initial_a(*adapter, in));
  ranks_ = rank * std::ssize(layers);
  a_ = ExpertMatrices(a, {experts, ranks_, in}, ranks_ * in);
  for (const ExpertLayer& layer : layers) {
    std::vector<ParamId> b;
    for (const std::string& path : layer.paths)
      add(b, path + ".lora_B.weight", {layer.out, rank}, Init::constant(0));
    layers_.push_back({.column = layer.column,
                       .out = layer.out,
                       .first = rank * std::ssize(layers_),
                       .rank = rank,
                       .scale = adapter->scale,
                       .b = ExpertMatrices(b, {experts, layer.out, rank}, layer.out * rank)});
  }
}

ExpertAdapter::ExpertAdapter(ParamList& params, const ModelConfig& config, const ExpertLayer& layer,
                             const std::string& name, double share) {
  const Adapter* const adapter = adapter_of(config, layer);
  if (!adapter) return;
  check_dropout(*adapter);
  const int64_t rank = adapter->rank, experts = config.experts;
  const auto add = [&](const char* end, const Shape& shape, const Init& init) {
    return params.add(
        {.name = name + end, .shape = shape, .init = init, .role = ParamRole::adapter, .share = share});
  };
  ranks_ = rank;
  a_ = ExpertMatrices(add(".lora_A.weight", {experts * rank, layer.in}, initial_a(*adapter, layer.in)),
                      {experts, rank, layer.in}, false);
  const ParamId b = add(".lora_B.weight", {layer.out, rank * experts}, Init::constant(0));
  layers_.push_back({.column = layer.column,
                     .out = layer.out,
                     .first = 0,
                     .rank = rank,
                     .scale = adapter->scale,
                     .b = ExpertMatrices(b, {experts, layer.out, rank}, true)});
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
