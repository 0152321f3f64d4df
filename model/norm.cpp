#include "model/norm.h"

#include <array>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"

namespace flatshard {

ParamId declare_norm(ParamList& params, const ModelConfig& config, const std::string& name, int64_t size,
                     float value) {
  return params.add({.name = name,
                     .shape = {size},
                     .init = Init::constant(value),
                     .role = ParamRole::norm,
                     .trainable = !config.fp32_norms,
                     .dtype = config.fp32_norms ? std::optional(DType::f32) : std::nullopt});
}

Norm::Norm(ParamList& params, const ModelConfig& config, const std::string& prefix, NormKind kind,
           int64_t size)
    : kind_(kind),
      size_(size),
      eps_(static_cast<float>(*config.norm_eps)),
      offset_(config.norm_offset),
      rounds_(config.norm_rounds) {
  w_ = declare_norm(params, config, prefix + ".weight", size, 1 - offset_);
  if (kind == NormKind::layer) b_ = declare_norm(params, config, prefix + ".bias", size, 0);
}

void Norm::forward(LayerCall& c, const ParamView& p, const Rows& y, const Tensor& x, const Tensor& addend) {
  rstd_ = c.saved.alloc(DType::f32, {x.size() / size_});
  if (kind_ == NormKind::layer) {
    check(addend.empty(), "LayerNorm takes no addend: call add() after it");
    mean_ = c.saved.alloc(DType::f32, {x.size() / size_});
  }
  normalize(c, p, y, x, addend);
}

void Norm::forward_again(LayerCall& c, const ParamView& p, const Rows& y, const Tensor& x) const {
  normalize(c, p, y, x, {});
}

void Norm::normalize(LayerCall& c, const ParamView& p, const Rows& y, const Tensor& x,
                     const Tensor& addend) const {
  if (kind_ == NormKind::rms)
    return rmsnorm_forward(c.stream, {.y = y.values(),
                                      .rstd = rstd_,
                                      .x = x,
                                      .w = p[w_],
                                      .addend = addend,
                                      .eps = eps_,
                                      .offset = offset_,
                                      .round_xhat = rounds_,
                                      .y_stride = y.stride()});
  layernorm_forward(c.stream, {.y = y.values(),
                               .mean = mean_,
                               .rstd = rstd_,
                               .x = x,
                               .w = p[w_],
                               .b = p[b_],
                               .eps = eps_,
                               .y_stride = y.stride()});
}

bool Norm::is_trained(const GradView& g) const {
  return exists() && (!g[w_].empty() || (kind_ == NormKind::layer && !g[b_].empty()));
}

void Norm::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                    const Tensor& x, bool accumulate) const {
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
                             .accumulate_dx = accumulate,
                             .accumulate = g.accumulates(w_)});
  const std::array trained{w_, b_};
  layernorm_backward(c.stream, c.scratch,
                     {.dx = dx,
                      .dw = g[w_],
                      .db = g[b_],
                      .dy = dy,
                      .x = x,
                      .w = p[w_],
                      .mean = mean_,
                      .rstd = rstd_,
                      .accumulate_dx = accumulate,
                      .accumulate = g.accumulates(trained)});
}

Rows InputNorm::forward(LayerCall& c, const ParamView& p, const Tensor& x, const Linear& reader) {
  if (!exists()) return x;
  const Rows h = reader.input(c, c.recomputes_ops ? c.scratch : c.saved, x.shape[0]);
  norm_.forward(c, p, h, x);
  return h;
}

Rows InputNorm::again(LayerCall& c, const ParamView& p, const Tensor& x, const Rows& h,
                      Linear& reader) const {
  if (!exists()) return x;
  if (!c.recomputes_ops) return h;
  const Rows again = reader.input(c, c.scratch, x.shape[0]);
  norm_.forward_again(c, p, again, x);
  reader.restore(c, p, again);
  return again;
}

Tensor InputNorm::gradient(LayerCall& c, const GradView& g, const Tensor& dx) const {
  if (!exists()) return c.input_gradient ? dx : Tensor{};
  return wants_gradient(c, g) ? c.scratch.alloc(c.dtype, dx.shape) : Tensor{};
}

void InputNorm::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                         const Tensor& dh, const Tensor& x) const {
  if (exists() && wants_gradient(c, g)) norm_.backward(c, p, g, dx, dh, x, true);
}

Tensor ResidualSum::output(LayerCall& c, const Tensor& y) {
  if (product_adds()) return y;
  o_ = (norm_.exists() ? c.saved : c.scratch).alloc(c.dtype, y.shape);  // backward() reads it for the norm
  return o_;
}

void ResidualSum::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  if (product_adds()) return;
  if (factor_ == 1) return norm_.forward(c, p, y, o_, x);
  if (norm_.exists()) norm_.forward(c, p, y, o_);
  add(c.stream, {.y = y, .a = x, .b = norm_.exists() ? y : o_, .factor = factor_});
}

Tensor ResidualSum::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dy) const {
  Tensor d_o = dy;
  if (factor_ != 1) {
    d_o = c.scratch.alloc(c.dtype, dy.shape);
    scale(c.stream, {.y = d_o, .x = dy, .factor = factor_});
  }
  if (!norm_.exists()) return d_o;
  const Tensor d_normed = std::exchange(d_o, c.scratch.alloc(c.dtype, dy.shape));
  norm_.backward(c, p, g, d_o, d_normed, o_, false);
  return d_o;
}

}  // namespace flatshard
