#include "model/transformer.h"

#include <utility>

#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/head.h"
#include "model/names.h"
#include "runtime/memory.h"

namespace flatshard {

EmbeddingStage::EmbeddingStage(ParamList& params, const ModelConfig& config)
    : learned_positions_(config.positions == PositionKind::learned) {
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

void EmbeddingStage::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor&) {
  embedding_forward(c.stream, {.y = y,
                               .w = p[w_],
                               .tokens = c.tokens,
                               .p = learned_positions_ ? p[positions_] : Tensor{},
                               .positions = learned_positions_ ? c.positions : Tensor{}});
}

void EmbeddingStage::backward(Context& c, const ParamView&, const GradView& g, const Tensor& dx,
                              const Tensor&) {
  const Tensor dp = learned_positions_ ? g[positions_] : Tensor{};
  if (g[w_].empty() && dp.empty()) return;
  embedding_backward(c.stream, {.dw = g[w_],
                                .dy = dx,
                                .tokens = c.tokens,
                                .dp = dp,
                                .positions = dp.empty() ? Tensor{} : c.positions});
}

AttentionHalf::AttentionHalf(ParamList& params, const ModelConfig& config, int64_t layer,
                             const Tensor& rope_table)
    : norm_(params, config,
            block_prefix(param_names(config.family), layer) + param_names(config.family).norm1, config.norm,
            config.hidden),
      attention_(params, config, layer, rope_table) {}

void AttentionHalf::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  h_ = c.saved.alloc(c.dtype, x.shape);
  norm_.forward(c, p, h_, x);
  copy(c.stream, y, x);
  attention_.forward(c, p, y, h_);
}

void AttentionHalf::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                             const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const Tensor dh = c.input_gradient || norm_.is_trained(g) ? c.scratch.alloc(c.dtype, x.shape) : Tensor{};
  attention_.backward(c, p, g, dh, dx, h_);
  if (!dh.empty()) norm_.backward(c, p, g, dx, dh, x, true);
}

MlpHalf::MlpHalf(ParamList& params, const ModelConfig& config, int64_t layer)
    : norm_(params, config,
            block_prefix(param_names(config.family), layer) + param_names(config.family).norm2, config.norm,
            config.hidden),
      mlp_(params, config, layer) {}

void MlpHalf::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  h_ = c.saved.alloc(c.dtype, x.shape);
  norm_.forward(c, p, h_, x);
  copy(c.stream, y, x);
  mlp_.forward(c, p, y, h_);
}

void MlpHalf::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& x) {
  const ArenaScope scope(c.scratch);
  const Tensor dh = c.input_gradient || norm_.is_trained(g) ? c.scratch.alloc(c.dtype, x.shape) : Tensor{};
  mlp_.backward(c, p, g, dh, dx, h_);
  if (!dh.empty()) norm_.backward(c, p, g, dx, dh, x, true);
}

Block::Block(ParamList& params, const ModelConfig& config, int64_t layer, const Tensor& rope_table)
    : attention_(params, config, layer, rope_table), mlp_(params, config, layer) {}

void Block::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) {
  r_ = c.saved.alloc(c.dtype, x.shape);
  attention_.forward(c, p, r_, x);
  mlp_.forward(c, p, y, r_);
}

void Block::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& x) {
  const bool input_gradient = std::exchange(c.input_gradient, true);  // of the attention half
  mlp_.backward(c, p, g, dx, r_);
  c.input_gradient = input_gradient;
  attention_.backward(c, p, g, dx, x);
}

HeadStage::HeadStage(ParamList& params, const ModelConfig& config, ParamId tied_weight)
    : norm_(params, config, param_names(config.family).final_norm, config.norm, config.hidden),
      w_(tied_weight) {
  if (!*config.tied)
    w_ = params.add({.name = param_names(config.family).head + ".weight",
                     .shape = {config.vocab, config.hidden},
                     .init = Init::normal(0.02f)});
  const std::string& path = param_names(config.family).head;
  if (const auto found = config.adapters.find(path); found != config.adapters.end())
    adapters_ = LayerAdapters(params, {{0, path, config.hidden, config.vocab, found->second}});
}

void HeadStage::forward(Context& c, const ParamView& p, const Tensor&, const Tensor& x) {
  const ArenaScope scope(c.saved);
  if (!c.states.empty()) return norm_.forward(c, p, c.states, x);
  const Tensor h = c.saved.alloc(c.dtype, x.shape);
  norm_.forward(c, p, h, x);
  if (!c.logits.empty()) {
    gemm(c.stream, c.scratch, {.c = c.logits, .a = h, .b = p[w_], .transpose_b = true, .tf32 = c.tf32});
    return adapters_.forward(c, p, {c.logits}, h);
  }
  head_loss_forward(c.stream, c.scratch,
                    {.loss = c.losses,
                     .x = h,
                     .w = p[w_],
                     .targets = c.targets,
                     .target_weights = c.target_weights,
                     .tf32 = c.tf32,
                     .add_to_logits = add_to_logits(c, p)});
}

void HeadStage::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                         const Tensor& x) {
  const ArenaScope saved(c.saved), scratch(c.scratch);
  const Tensor h = c.saved.alloc(c.dtype, x.shape), dh = c.scratch.alloc(c.dtype, x.shape);
  norm_.forward(c, p, h, x);
  head_loss_backward(c.stream, c.scratch,
                     {.dx = dh,
                      .dw = g[w_],
                      .loss = c.losses,
                      .x = h,
                      .w = p[w_],
                      .targets = c.targets,
                      .target_weights = c.target_weights,
                      .tf32 = c.tf32,
                      .add_to_logits = add_to_logits(c, p),
                      .add_to_gradients = add_to_gradients(c, p, g)});
  norm_.backward(c, p, g, dx, dh, x, false);
}

HeadWork HeadStage::add_to_logits(Context& c, const ParamView& p) {
  if (adapters_.empty()) return {};
  return [this, &c, p, mark = c.saved.mark()](const HeadChunk& chunk) {
    c.saved.rewind(mark);  // what the chunk before saved
    adapters_.forward(c, p, {chunk.logits}, chunk.x, chunk.first);
  };
}

HeadWork HeadStage::add_to_gradients(Context& c, const ParamView& p, const GradView& g) const {
  if (adapters_.empty()) return {};
  return [this, &c, p, g](const HeadChunk& chunk) {
    adapters_.backward(c, p, g, chunk.dx, {chunk.dlogits}, chunk.x, chunk.first);
  };
}

}  // namespace flatshard
