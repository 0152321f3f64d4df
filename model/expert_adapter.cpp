#include "model/expert_adapter.h"

#include "model/adapter.h"

namespace flatshard {

ExpertAdapter::ExpertAdapter(ParamList& params, const ModelConfig& config, const Layer& layer, double share) {
  const auto found = config.adapters.find(layer.path);
  if (found == config.adapters.end()) return;
  const Adapter& adapter = found->second;
  check(adapter.dropout == 0, "lora.dropout is ", adapter.dropout,
        ", must be 0 with adapters of experts, for which PEFT has no dropout");
  rank_ = adapter.rank;
  scale_ = adapter.scale;
  const int64_t experts = config.experts;
  const auto add = [&](const char* end, const Shape& shape, const Init& init) {
    return params.add(
        {.name = layer.name + end, .shape = shape, .init = init, .role = ParamRole::adapter, .share = share});
  };
  a_ = ExpertMatrices(add(".lora_A.weight", {experts * rank_, layer.in}, initial_a(adapter, layer.in)),
                      {experts, rank_, layer.in}, false);
  b_ = ExpertMatrices(add(".lora_B.weight", {layer.out, rank_ * experts}, Init::constant(0)),
                      {experts, layer.out, rank_}, true);
}

Tensor ExpertAdapter::project(LayerCall& c, const ParamView& p, const Tensor& x,
                              const ExpertSegments& s) const {
  const int64_t R = s.rows.empty() ? x.shape[0] : s.rows.size();
  const Tensor u = c.scratch.alloc(c.dtype, {R, rank_});
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
  b_.multiply(c, p,
              {.c = y,
               .a = u,
               .offsets = s.offsets,
               .transpose_b = true,
               .accumulate = true,
               .alpha = scale_,
               .most_rows = s.most_rows});
}

Tensor ExpertAdapter::backward(LayerCall& c, const ParamView& p, const Tensor& dx, const Tensor& dy,
                               const ExpertSegments& s) const {
  if (empty()) return {};
  const Tensor du = c.scratch.alloc(c.dtype, {dy.shape[0], rank_});
  b_.multiply(c, p, {.c = du, .a = dy, .offsets = s.offsets, .alpha = scale_});
  if (!dx.empty()) a_.multiply(c, p, {.c = dx, .a = du, .offsets = s.offsets, .accumulate = true});
  return du;
}

void ExpertAdapter::add_gradients(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& du,
                                  const Tensor& dy, const Tensor& x, const ExpertSegments& s) const {
  if (empty()) return;
  const ArenaScope scope(c.scratch);
  a_.add_gradient(c, g, {.a = du, .b = x, .offsets = s.offsets, .rows = s.rows});
  const Tensor u = project(c, p, x, s);
  b_.add_gradient(c, g, {.a = dy, .b = u, .offsets = s.offsets, .alpha = scale_});
}

}  // namespace flatshard
