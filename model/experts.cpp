#include "model/experts.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/expert_rows.h"
#include "kernels/gather_rows.h"
#include "kernels/grouped_product.h"
#include "kernels/route.h"
#include "model/names.h"

namespace flatshard {

void ExpertMlp::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Rows& x, const Tensor& r) {
  const ArenaScope scope(c.scratch);
  route(c, p, x);  // 1, 2
  const int64_t R = rows_.size();
  up_ = c.saved.alloc(c.dtype, {R, 2 * ffn_});
  a_ = (c.recomputes_ops ? c.scratch : c.saved).alloc(c.dtype, {R, ffn_});
  grouped_product(c.stream, c.scratch,
                  {.c = up_,  // 3, 4
                   .a = x.values(),
                   .b = weights(p, Part::gate_up),
                   .offsets = offsets_,
                   .rows = rows_,
                   .transpose_b = true,
                   .between = expert_size(),
                   .most_rows = x.count(),
                   .end = activation_.forward(a_, up_)});
  const Tensor rest = add_shared(c, p, x, r, !y.empty());
  if (y.empty()) return;
  const Tensor o = c.scratch.alloc(c.dtype, {R, hidden_});
  grouped_product(c.stream, c.scratch,
                  {.c = o,  // 5
                   .a = a_,
                   .b = weights(p, Part::down),
                   .offsets = offsets_,
                   .transpose_b = true,
                   .between = expert_size(),
                   .most_rows = x.count()});
  combine_rows(c.stream, {.y = y, .x = o, .places = places_, .weights = weights_, .addend = rest});  // 6
}

void ExpertMlp::route(LayerCall& c, const ParamView& p, const Rows& x) {
  const int64_t N = x.count(), k = per_token_;
  logits_ = c.saved.alloc(DType::f32, {N, count_});
  chosen_ = c.saved.alloc(DType::i32, {N, k});
  weights_ = c.saved.alloc(DType::f32, {N, k});
  offsets_ = c.saved.alloc(DType::i32, {count_ + 1});
  rows_ = c.saved.alloc(DType::i32, {expert_row_count(N * k, count_)});
  places_ = c.saved.alloc(DType::i32, {N, k});
  router_.forward(c, p, logits_, x);
  route_forward(c.stream, {.experts = chosen_,
                           .weights = weights_,
                           .logits = logits_,
                           .targets = c.targets,
                           .normalized = normalized_});
  Tensor counts, step_counts;
  if (!c.repeats) {
    counts = c.routing.counts;
    if (!c.routing.step_counts.empty())
      step_counts = c.routing.step_counts.slice(layer_, layer_ + 1).view({count_});
  }
  expert_rows(c.stream, {.offsets = offsets_,
                         .rows = rows_,
                         .places = places_,
                         .counts = counts,
                         .step_counts = step_counts,
                         .experts = chosen_});
}

// From the last step to the first.
void ExpertMlp::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                         const Tensor& dy, const Rows& x, bool accumulate) {
  const ArenaScope scope(c.scratch);
  const int64_t R = rows_.size();
  if (c.recomputes_ops) {
    a_ = c.scratch.alloc(c.dtype, {R, ffn_});
    run(c.stream, activation_.forward(a_, up_));
  }
  const Tensor d_o = c.scratch.alloc(c.dtype, {R, hidden_}), da = c.scratch.alloc(c.dtype, {R, ffn_}),
               d_up = c.scratch.alloc(c.dtype, {R, 2 * ffn_}),
               dweights = c.scratch.alloc(DType::f32, weights_.shape);
  // 6 and 5: as if all weights were 1; then da and a are multiplied by them.
  gather_rows(c.stream, {.y = d_o, .x = dy, .index = rows_});
  grouped_product(
      c.stream, c.scratch,
      {.c = da, .a = d_o, .b = weights(p, Part::down), .offsets = offsets_, .between = expert_size()});
  weigh_rows(c.stream, {.dweights = dweights, .da = da, .a = a_, .places = places_, .weights = weights_});
  weight_gradient(c, g, Part::down, d_o, a_, {});
  run(c.stream, activation_.backward(d_up, da, up_));             // 4
  weight_gradient(c, g, Part::gate_up, d_up, x.values(), rows_);  // 3
  if (!dx.empty()) {
    const Tensor d_rows = d_o;  // (R, C)
    grouped_product(c.stream, c.scratch,
                    {.c = d_rows,
                     .a = d_up,
                     .b = weights(p, Part::gate_up),
                     .offsets = offsets_,
                     .between = expert_size()});
    combine_rows(c.stream, {.y = dx, .x = d_rows, .places = places_, .addend = accumulate ? dx : Tensor{}});
  }
  router_backward(c, p, g, dx, dweights, x);  // 2, 1
  if (shared_) shared_backward(c, p, g, dx, dy, x);
}

Tensor ExpertMlp::add_shared(LayerCall& c, const ParamView& p, const Rows& x, const Tensor& r, bool output) {
  if (!shared_) return r;
  const int64_t N = x.count();
  shared_->o = c.saved.alloc(c.dtype, {N, hidden_});
  shared_->logits = c.saved.alloc(DType::f32, {N, 1});
  shared_->mlp.forward(c, p, shared_->o, x, {});
  shared_->gate.forward(c, p, shared_->logits, x);
  if (!output) return {};
  const Tensor sum = c.scratch.alloc(c.dtype, {N, hidden_});
  gate_rows_forward(c.stream, {.y = sum, .x = shared_->o, .gate = shared_->logits, .addend = r});
  return sum;
}

void ExpertMlp::shared_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                                const Tensor& dy, const Rows& x) {
  const Tensor d_o = c.scratch.alloc(c.dtype, shared_->o.shape),
               dgate = c.scratch.alloc(DType::f32, shared_->logits.shape);
  gate_rows_backward(c.stream,
                     {.dx = d_o, .dgate = dgate, .dy = dy, .x = shared_->o, .gate = shared_->logits});
  shared_->mlp.backward(c, p, g, dx, d_o, x, true);
  shared_->gate.backward(c, p, g, dx, rounded(c, dgate), x, true);
}

Tensor ExpertMlp::rounded(LayerCall& c, const Tensor& gradient) {
  if (c.dtype == DType::f32) return gradient;
  const Tensor in_16_bits = c.scratch.alloc(c.dtype, gradient.shape);
  cast(c.stream, {.y = in_16_bits, .x = gradient});
  return in_16_bits;
}

void ExpertMlp::router_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                                const Tensor& dweights, const Rows& x) const {
  const Tensor dlogits = c.scratch.alloc(DType::f32, logits_.shape);
  route_backward(c.stream, {.dlogits = dlogits,
                            .dweights = dweights,
                            .experts = chosen_,
                            .weights = weights_,
                            .logits = logits_,
                            .normalized = normalized_,
                            .factors = c.routing.factors,
                            .counts = c.routing.counts});
  router_.backward(c, p, g, dx, rounded(c, dlogits), x, true);
}

void ExpertMlp::weight_gradient(LayerCall& c, const GradView& g, Part part, const Tensor& dy, const Tensor& x,
                                const Tensor& rows) const {
  const std::vector<ParamId> trained = ids(part);
  if (g[trained.front()].empty()) return;
  grouped_product(c.stream, c.scratch,
                  {.c = matrices(g[trained.front()], part),
                   .a = dy,
                   .b = x,
                   .offsets = offsets_,
                   .rows = rows,
                   .transpose_a = true,
                   .accumulate = g.accumulates(trained),
                   .between = expert_size()});
}

std::vector<ParamId> ExpertMlp::ids(Part part) const {
  std::vector<ParamId> all;
  for (size_t first = 0; first < experts_.size(); first += 3) {
    if (part == Part::down) {
      all.push_back(experts_[first + 2]);
      continue;
    }
    all.push_back(experts_[first]);
    all.push_back(experts_[first + 1]);
  }
  return all;
}

Tensor ExpertMlp::matrices(const Tensor& first, Part part) const {
  Tensor all = first;
  all.shape = part == Part::gate_up ? Shape{count_, 2 * ffn_, hidden_} : Shape{count_, hidden_, ffn_};
  return all;
}

Tensor ExpertMlp::weights(const ParamView& p, Part part) const {
  const Tensor& first = p[experts_[part == Part::gate_up ? 0 : 2]];
  const Tensor& last = p[experts_[part == Part::gate_up ? experts_.size() - 3 : experts_.size() - 1]];
  check(!first.data ||
            static_cast<char*>(first.data) + (count_ - 1) * expert_size() * size_of(first.dtype) == last.data,
        "the experts of a block do not follow one another in memory");
  return matrices(first, part);
}

namespace {

std::string prefix(const ModelConfig& config, int64_t layer) {
  return block_prefix(param_names(config.family), layer);
}

LinearSpec router_layer(const ModelConfig& config, int64_t layer) {
  return {prefix(config, layer) + param_names(config.family).router, config.hidden, config.experts};
}

}  // namespace

ExpertMlp::ExpertMlp(ParamList& params, const ModelConfig& config, int64_t layer)
    : layer_(layer),
      count_(config.experts),
      per_token_(config.experts_per_token),
      ffn_(config.expert_ffn),
      hidden_(config.hidden),
      normalized_(*config.norm_topk),
      activation_(config.mlp),
      router_(params, config, {router_layer(config, layer)}) {
  const ParamNames& names = param_names(config.family);
  const Init init = Init::normal(0.02f), last = Init::normal(init_std_to_stream(config));
  const double share = static_cast<double>(per_token_) / static_cast<double>(count_);
  for (int64_t e = 0; e < count_; ++e) {
    const auto add = [&](const std::string& name, const Shape& shape, const Init& values) {
      experts_.push_back(params.add({.name = prefix(config, layer) + of_expert(name, e) + ".weight",
                                     .shape = shape,
                                     .init = values,
                                     .joined = !experts_.empty(),
                                     .share = share}));
    };
    add(names.expert_gate, {ffn_, hidden_}, init);
    add(names.expert_up, {ffn_, hidden_}, init);
    add(names.expert_down, {hidden_, ffn_}, last);
  }
  if (config.shared_ffn == 0) return;
  const std::string in_block = prefix(config, layer);
  const LinearSpec up{in_block + names.shared_up, hidden_, config.shared_ffn};
  LinearSpec gate = up, down{in_block + names.shared_down, config.shared_ffn, hidden_};
  gate.path = in_block + names.shared_gate;
  down.init_std = init_std_to_stream(config);
  Mlp mlp(params, config, {gate, up}, down);
  shared_.emplace(std::move(mlp), Linear(params, config, {{in_block + names.shared_switch, hidden_, 1}}));
}

}  // namespace flatshard
