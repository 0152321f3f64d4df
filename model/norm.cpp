#include "model/norm.h"

#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"

namespace flatshard {

Norm::Norm(ParamList& params, const ModelConfig& config, const std::string& prefix, NormKind kind,
           int64_t size)
    : kind_(kind),
      size_(size),
      eps_(static_cast<float>(*config.norm_eps)),
      offset_(config.norm_offset),
      rounds_(config.norm_rounds) {
  const auto add = [&](const char* name, float value) {
    return params.add({.name = prefix + name,
                       .shape = {size},
                       .init = Init::constant(value),
                       .role = ParamRole::norm,
                       .trainable = !config.fp32_norms,
                       .dtype = config.fp32_norms ? std::optional(DType::f32) : std::nullopt});
  };
  w_ = add(".weight", 1 - offset_);
  if (kind == NormKind::layer) b_ = add(".bias", 0);
}

void Norm::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  rstd_ = c.saved.alloc(DType::f32, {x.size() / size_});
  if (kind_ == NormKind::rms)
    return rmsnorm_forward(
        c.stream,
        {.y = y, .rstd = rstd_, .x = x, .w = p[w_], .eps = eps_, .offset = offset_, .round_xhat = rounds_});
  mean_ = c.saved.alloc(DType::f32, {x.size() / size_});
  layernorm_forward(c.stream,
                    {.y = y, .mean = mean_, .rstd = rstd_, .x = x, .w = p[w_], .b = p[b_], .eps = eps_});
}

bool Norm::is_trained(const GradView& g) const {
  return exists() && (!g[w_].empty() || (kind_ == NormKind::layer && !g[b_].empty()));
}

void Norm::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                    const Tensor& x, bool accumulate) {
  if (kind_ == NormKind::rms)
    return rmsnorm_backward(c.stream, c.scratch,
                            {.dx = dx,
                             .dw = g[w_],
                             .dy = dy,
                             .x = x,
                             .w = p[w_],
                             .rstd = rstd_,
                             .offset = offset_,
                             .round_xhat = rounds_,
                             .accumulate_dx = accumulate});
  layernorm_backward(c.stream, c.scratch,
                     {.dx = dx,
                      .dw = g[w_],
                      .db = g[b_],
                      .dy = dy,
                      .x = x,
                      .w = p[w_],
                      .mean = mean_,
                      .rstd = rstd_,
                      .accumulate_dx = accumulate});
}

}  // namespace flatshard
