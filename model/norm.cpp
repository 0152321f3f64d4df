#include "model/norm.h"

#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"

namespace flatshard {
namespace {

// The norms always compute the gradient of w: that of a frozen one goes to scratch.
Tensor gradient_or_scratch(Context& c, const Tensor& gradient, int64_t size) {
  return gradient.empty() ? c.scratch.alloc(DType::f32, {size}) : gradient;
}

}  // namespace

Norm::Norm(ParamList& params, const std::string& prefix, NormKind kind, int64_t size, double eps)
    : kind_(kind), size_(size), eps_(static_cast<float>(eps)) {
  w_ = params.add(
      {.name = prefix + ".weight", .shape = {size}, .init = Init::constant(1), .role = ParamRole::norm});
  if (kind == NormKind::layer)
    b_ = params.add(
        {.name = prefix + ".bias", .shape = {size}, .init = Init::constant(0), .role = ParamRole::norm});
}

void Norm::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  rstd_ = c.saved.alloc(DType::f32, {x.size() / size_});
  if (kind_ == NormKind::rms)
    return rmsnorm_forward(c.stream, {.y = y, .rstd = rstd_, .x = x, .w = p[w_], .eps = eps_});
  mean_ = c.saved.alloc(DType::f32, {x.size() / size_});
  layernorm_forward(c.stream,
                    {.y = y, .mean = mean_, .rstd = rstd_, .x = x, .w = p[w_], .b = p[b_], .eps = eps_});
}

bool Norm::is_trained(const GradView& g) const {
  return !g[w_].empty() || (kind_ == NormKind::layer && !g[b_].empty());
}

void Norm::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                    const Tensor& x, bool accumulate) {
  const ArenaScope scope(c.scratch);
  const Tensor dw = gradient_or_scratch(c, g[w_], size_);
  if (kind_ == NormKind::rms)
    return rmsnorm_backward(
        c.stream, c.scratch,
        {.dx = dx, .dw = dw, .dy = dy, .x = x, .w = p[w_], .rstd = rstd_, .accumulate_dx = accumulate});
  const Tensor db = gradient_or_scratch(c, g[b_], size_);
  layernorm_backward(c.stream, c.scratch,
                     {.dx = dx,
                      .dw = dw,
                      .db = db,
                      .dy = dy,
                      .x = x,
                      .w = p[w_],
                      .mean = mean_,
                      .rstd = rstd_,
                      .accumulate_dx = accumulate});
}

}  // namespace flatshard
