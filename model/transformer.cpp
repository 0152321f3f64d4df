#include "model/transformer.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gather_rows.h"
#include "kernels/gemm.h"
#include "kernels/head.h"
#include "model/names.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

float rounded(float value, DType dtype) {
  return visit_float(dtype, [&]<class T>() { return static_cast<float>(T(value)); });
}

bool has_images(const LayerCall& c) { return c.images.rows.size() > 0; }

}  // namespace

EmbeddingLayer::EmbeddingLayer(ParamList& params, const ModelConfig& config)
    : TextLayer(config),
      learned_positions_(config.positions == PositionKind::learned),
      scales_by_width_(config.embedding_scale),
      factor_(static_cast<float>(config.embedding_multiplier)) {
  const ParamNames& names = param_names(config.family);
  w_ = params.add({.name = names.embedding + ".weight",
                   .shape = {config.vocab, config.hidden},
                   .init = Init::normal(0.02f),
                   .role = ParamRole::embedding});
  if (learned_positions_)
    positions_ = params.add({.name = names.positions + ".weight",
                             .shape = {config.max_positions, config.hidden},
                             .init = Init::normal(0.02f),
                             .role = ParamRole::embedding});
}

float EmbeddingLayer::factor(DType dtype) const {
  return factor_ * (scales_by_width_ ? rounded(std::sqrt(static_cast<float>(hidden_)), dtype) : 1);
}

void EmbeddingLayer::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  embedding_forward(c.stream, {.y = y,
                               .w = p[w_],
                               .tokens = c.tokens,
                               .p = learned_positions_ ? p[positions_] : Tensor{},
                               .positions = learned_positions_ ? c.positions : Tensor{}});
  if (!c.repeats && !c.routing.counts.empty()) zero(c.stream, c.routing.counts);
  if (factor(c.dtype) != 1) scale(c.stream, {.y = y, .x = y, .factor = factor(c.dtype)});
  if (has_images(c)) scatter_rows(c.stream, {.y = y, .x = x, .index = c.images.rows});
}

void EmbeddingLayer::backward(LayerCall& c, const ParamView&, const GradView& g, const Tensor& dx,
                              const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const bool returns = has_images(c) && c.input_gradient;
  Tensor d_images;
  if (returns) {
    d_images = c.scratch.alloc(c.dtype, x.shape);
    gather_rows(c.stream, {.y = d_images, .x = dx, .index = c.images.rows});
  }
  add_gradients(c, g, dx);
  if (returns) copy(c.stream, gradient_of_input(dx, x), d_images);
}

void EmbeddingLayer::add_gradients(LayerCall& c, const GradView& g, const Tensor& dx) const {
  const Tensor dp = learned_positions_ ? g[positions_] : Tensor{};
  if (g[w_].empty() && dp.empty()) return;
  const ArenaScope scope(c.scratch);
  if (has_images(c)) {  // the forward pass did not use the embeddings of these tokens
    const Tensor none = c.scratch.alloc(c.dtype, {c.images.rows.size(), hidden_});
    zero(c.stream, none);
    scatter_rows(c.stream, {.y = dx, .x = none, .index = c.images.rows});
  }
  Tensor dy = dx;
  if (factor(c.dtype) != 1) {
    dy = c.scratch.alloc(dx.dtype, dx.shape);
    scale(c.stream, {.y = dy, .x = dx, .factor = factor(c.dtype)});
  }
  // The backward pass adds to the rows of the tokens; all others are zero.
  if (!g.accumulates(w_)) zero(c.stream, g[w_]);
  if (learned_positions_ && !g.accumulates(positions_)) zero(c.stream, dp);
  embedding_backward(c.stream, c.scratch,
                     {.dw = g[w_],
                      .dy = dy,
                      .tokens = c.tokens,
                      .dp = dp,
                      .positions = dp.empty() ? Tensor{} : c.positions});
}

HeadLayer::HeadLayer(ParamList& params, const ModelConfig& config, ParamId tied_weight)
    : TextLayer(config),
      norm_(params, config, param_names(config.family).final_norm, config.norm, config.hidden),
      w_(tied_weight),
      logit_factor_(static_cast<float>(1 / config.logit_divisor)),
      softcap_(static_cast<float>(*config.logit_softcap)) {
  if (!*config.tied)
    w_ = params.add({.name = param_names(config.family).head + ".weight",
                     .shape = {config.vocab, config.hidden},
                     .init = Init::normal(0.02f)});
  const std::string& path = param_names(config.family).head;
  if (const auto found = config.adapters.find(path); found != config.adapters.end())
    adapters_ = LayerAdapters(params, {{0, path, config.hidden, config.vocab, found->second}});
}

void HeadLayer::normalize(LayerCall& c, const ParamView& p, const Tensor& h, const Tensor& x) {
  norm_.forward(c, p, h, x);
  if (logit_factor_ != 1) scale(c.stream, {.y = h, .x = h, .factor = logit_factor_});
}

void HeadLayer::forward(LayerCall& c, const ParamView& p, const Tensor&, const Tensor& x) {
  const ArenaScope scope(c.saved);
  if (!c.states.empty()) return norm_.forward(c, p, c.states, x);
  const Tensor h = c.saved.alloc(c.dtype, x.shape);
  normalize(c, p, h, x);
  if (!c.logits.empty()) {
    gemm(c.stream, c.scratch, {.c = c.logits, .a = h, .b = p[w_], .transpose_b = true, .tf32 = c.tf32});
    adapters_.forward(c, p, c.logits, h);
    if (softcap_ > 0) softcap(c.stream, {.y = c.logits, .x = c.logits, .cap = softcap_});
    return;
  }
  head_loss_forward(c.stream, c.scratch,
                    {.loss = c.losses,
                     .x = h,
                     .w = p[w_],
                     .targets = c.targets,
                     .target_weights = c.target_weights,
                     .chunk = c.head_chunk,
                     .tf32 = c.tf32,
                     .softcap = softcap_,
                     .add_to_logits = add_to_logits(c, p)});
}

void HeadLayer::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                         const Tensor& x) {
  const ArenaScope saved(c.saved), scratch(c.scratch);
  const Tensor h = c.saved.alloc(c.dtype, x.shape), dh = c.scratch.alloc(c.dtype, x.shape);
  const Tensor weights = c.answers ? c.scratch.alloc(DType::f32, {x.shape[0]}) : Tensor{};
  normalize(c, p, h, x);
  head_loss_backward(c.stream, c.scratch,
                     {.dx = dh,
                      .dw = g[w_],
                      .loss = c.losses,
                      .x = h,
                      .w = p[w_],
                      .targets = c.targets,
                      .target_weights = c.target_weights,
                      .chunk = c.head_chunk,
                      .tf32 = c.tf32,
                      .softcap = softcap_,
                      .accumulate = g.accumulates(w_),
                      .add_to_logits = add_to_logits(c, p),
                      .add_to_gradients = add_to_gradients(c, p, g),
                      .weigh = weigh(c, weights),
                      .gradient_weights = weights});
  if (logit_factor_ != 1) scale(c.stream, {.y = dh, .x = dh, .factor = logit_factor_});
  norm_.backward(c, p, g, dx, dh, x, false);
}

HeadWork HeadLayer::add_to_logits(LayerCall& c, const ParamView& p) {
  if (adapters_.empty()) return {};
  return [this, &c, p, mark = c.saved.mark()](const HeadChunk& head) {
    c.saved.rewind(mark);  // releases the tensors that the previous head chunk saved
    adapters_.forward(c, p, head.logits, head.x, head.first);
  };
}

HeadWork HeadLayer::add_to_gradients(LayerCall& c, const ParamView& p, const GradView& g) const {
  if (adapters_.empty()) return {};
  return [this, &c, p, g](const HeadChunk& head) {
    adapters_.backward(c, p, g, head.dx, head.dlogits, head.x, head.first);
  };
}

HeadWork HeadLayer::weigh(LayerCall& c, const Tensor& gradient_weights) {
  if (!c.answers) return {};
  return [&c, gradient_weights](const HeadChunk& head) {
    answer_loss_backward(c.stream, {.dnll = gradient_weights,
                                    .nll = c.losses,
                                    .targets = c.targets,
                                    .inputs = *c.answers,
                                    .first = head.first,
                                    .end = head.first + head.x.shape[0]});
  };
}

}  // namespace flatshard
