#include "model/norm.h"

#include <array>

#include "kernels/layernorm.h"
#include "kernels/packed.h"
#include "kernels/qk_norm.h"
#include "kernels/rmsnorm.h"

namespace flatshard {
namespace {

ParamId declare(ParamList& params, const ModelConfig& config, const std::string& name, int64_t size,
                float value) {
  return params.add({.name = name,
                     .shape = {size},
                     .init = Init::constant(value),
                     .role = ParamRole::norm,
                     .trainable = !config.fp32_norms,
                     .dtype = config.fp32_norms ? std::optional(DType::f32) : std::nullopt});
}

}  // namespace

Norm::Norm(ParamList& params, const ModelConfig& config, const std::string& prefix, NormKind kind,
           int64_t size)
    : kind_(kind),
      size_(size),
      eps_(static_cast<float>(*config.norm_eps)),
      offset_(config.norm_offset),
      rounds_(config.norm_rounds) {
  w_ = declare(params, config, prefix + ".weight", size, 1 - offset_);
  if (kind == NormKind::layer) b_ = declare(params, config, prefix + ".bias", size, 0);
}

void Norm::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, const Tensor& addend) {
  rstd_ = c.saved.alloc(DType::f32, {x.size() / size_});
  if (kind_ == NormKind::layer) {
    check(addend.empty(), "LayerNorm takes no addend: call add() after it");
    mean_ = c.saved.alloc(DType::f32, {x.size() / size_});
  }
  normalize(c, p, y, x, addend);
}

void Norm::forward_again(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) const {
  normalize(c, p, y, x, {});
}

void Norm::normalize(Context& c, const ParamView& p, const Tensor& y, const Tensor& x,
                     const Tensor& addend) const {
  const Tensor own = y.shape == x.shape ? y : packed_columns(y, 0, x.shape);
  if (kind_ == NormKind::rms)
    return rmsnorm_forward(c.stream, {.y = own,
                                      .rstd = rstd_,
                                      .x = x,
                                      .w = p[w_],
                                      .addend = addend,
                                      .eps = eps_,
                                      .offset = offset_,
                                      .round_xhat = rounds_,
                                      .y_stride = y.shape[-1]});
  layernorm_forward(c.stream, {.y = own,
                               .mean = mean_,
                               .rstd = rstd_,
                               .x = x,
                               .w = p[w_],
                               .b = p[b_],
                               .eps = eps_,
                               .y_stride = y.shape[-1]});
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

QkNorm::QkNorm(ParamList& params, const ModelConfig& config, const std::string& q_prefix,
               const std::string& k_prefix)
    : query_heads_(config.heads),
      heads_(config.heads + config.kv_heads),
      eps_(static_cast<float>(*config.norm_eps)),
      offset_(config.norm_offset),
      rounds_(config.norm_rounds) {
  const bool all = config.qk_norm_width == QkNormWidth::all_heads;
  const int64_t D = config.head_dim;
  rows_ = all ? 2 : heads_;
  wq_ = declare(params, config, q_prefix + ".weight", all ? config.heads * D : D, 1 - offset_);
  wk_ = declare(params, config, k_prefix + ".weight", all ? config.kv_heads * D : D, 1 - offset_);
}

Tensor QkNorm::heads_of(const Tensor& packed) const {
  const int64_t N = packed.shape[0], D = packed.shape[2];
  return packed_columns(packed.view({N, packed.shape[1] * D}), 0, {N, heads_, D});
}

void QkNorm::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& packed,
                     const Tensor& table) {
  rstd_ = c.saved.alloc(DType::f32, {packed.shape[0], rows_});
  forward_again(c, p, y, packed, table);
}

void QkNorm::forward_again(Context& c, const ParamView& p, const Tensor& y, const Tensor& packed,
                           const Tensor& table) const {
  qk_norm_forward(c.stream, {.y = y,
                             .rstd = rstd_,
                             .x = heads_of(packed),
                             .wq = p[wq_],
                             .wk = p[wk_],
                             .positions = c.positions,
                             .table = table,
                             .x_stride = packed.shape[1] * packed.shape[2],
                             .query_heads = query_heads_,
                             .eps = eps_,
                             .offset = offset_,
                             .round_xhat = rounds_});
}

void QkNorm::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& d,
                      const Tensor& packed, const Tensor& table) const {
  const int64_t stride = packed.shape[1] * packed.shape[2];
  const std::array trained{wq_, wk_};
  qk_norm_backward(c.stream, c.scratch,
                   {.dx = heads_of(d),
                    .dwq = g[wq_],
                    .dwk = g[wk_],
                    .dy = heads_of(d),
                    .x = heads_of(packed),
                    .wq = p[wq_],
                    .wk = p[wk_],
                    .rstd = rstd_,
                    .positions = c.positions,
                    .table = table,
                    .dx_stride = stride,
                    .dy_stride = stride,
                    .x_stride = stride,
                    .query_heads = query_heads_,
                    .offset = offset_,
                    .round_xhat = rounds_,
                    .accumulate = g.accumulates(trained)});
}

}  // namespace flatshard
