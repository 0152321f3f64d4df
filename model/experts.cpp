#include "model/experts.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/expert_bias.h"
#include "kernels/expert_rows.h"
#include "kernels/gather_rows.h"
#include "kernels/grouped_product.h"
#include "model/names.h"
#include "runtime/memory.h"

namespace flatshard {

void ExpertMlp::forward(LayerCall& c, const ParamView& p, const Tensor& y, const Rows& x, const Tensor& r) {
  const ArenaScope scope(c.scratch);
  route(c, p, x);  // 1, 2
  const Tensor o = y.empty() ? Tensor{} : c.scratch.alloc(c.dtype, {rows_.size(), hidden_});
  c.expert_exchange ? compute_on_peers(c, p, o, x) : compute(c, p, o, x);  // 3, 4, 5
  const Tensor rest = add_shared(c, p, x, r, !y.empty());
  if (y.empty()) return;
  combine_rows(c.stream, {.y = y, .x = o, .places = places_, .weights = weights_, .addend = rest});  // 6
}

void ExpertMlp::compute(LayerCall& c, const ParamView& p, const Tensor& o, const Rows& x) {
  const ArenaScope scope(c.scratch);
  const int64_t R = rows_.size();
  up_ = c.saved.alloc(c.dtype, {R, 2 * ffn_});
  a_ = (c.recomputes_ops ? c.scratch : c.saved).alloc(c.dtype, {R, ffn_});
  const ProductEnd activation = activation_.forward(a_, up_);
  const bool is_end = gate_up_adapter_.empty() && !gate_up_bias_;
  gate_up_.multiply(c, p,
                    {.c = up_,  // 3, 4
                     .a = x.values(),
                     .offsets = offsets_,
                     .rows = rows_,
                     .transpose_b = true,
                     .most_rows = x.count(),
                     .end = is_end ? activation : ProductEnd{}});
  gate_up_adapter_.forward(c, p, up_, x.values(), gathered(x.count()));
  add_bias(c, p, up_, gate_up_bias_);
  if (!is_end) run(c.stream, activation);
  if (o.empty()) return;
  down_.multiply(c, p,
                 {.c = o,
                  .a = a_,
                  .offsets = offsets_,
                  .used = rows_,
                  .transpose_b = true,
                  .most_rows = x.count()});  // 5
  down_adapter_.forward(c, p, o, a_, segments(x.count()));
  add_bias(c, p, o, down_bias_);
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
  RouteRule rule = rule_;
  rule.in_turn = c.routing.in_turn;
  route_forward(c.stream, {.experts = chosen_,
                           .weights = weights_,
                           .logits = logits_,
                           .targets = c.targets,
                           .bias = router_bias_ ? p[*router_bias_] : Tensor{},
                           .rule = rule});
  if (!c.routing.choices.empty())
    copy(c.stream, c.routing.choices.slice(layer_, layer_ + 1).view({N, k}), chosen_);
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
  const Tensor dweights = c.scratch.alloc(DType::f32, weights_.shape),
               d_rows = c.scratch.alloc(c.dtype, {rows_.size(), hidden_});
  if (c.expert_exchange)
    compute_backward_on_peers(c, p, g, d_rows, dweights, dy, x, !dx.empty());
  else
    compute_backward(c, p, g, d_rows, dweights, dy, x, !dx.empty());
  if (!dx.empty())
    combine_rows(c.stream, {.y = dx, .x = d_rows, .places = places_, .addend = accumulate ? dx : Tensor{}});
  router_backward(c, p, g, dx, dweights, x);  // 2, 1
  if (shared_) shared_backward(c, p, g, dx, dy, x);
}

void ExpertMlp::compute_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& d_rows,
                                 const Tensor& dweights, const Tensor& dy, const Rows& x,
                                 bool input_gradient) {
  const ArenaScope scope(c.scratch);
  const int64_t R = rows_.size();
  if (c.recomputes_ops) {
    a_ = c.scratch.alloc(c.dtype, {R, ffn_});
    run(c.stream, activation_.forward(a_, up_));
  }
  const Tensor &d_o = d_rows, da = c.scratch.alloc(c.dtype, {R, ffn_}),
               d_up = c.scratch.alloc(c.dtype, {R, 2 * ffn_});
  // 6 and 5: as if all weights were 1; then da and a are multiplied by them.
  gather_rows(c.stream, {.y = d_o, .x = dy, .index = rows_});
  down_.multiply(c, p, {.c = da, .a = d_o, .offsets = offsets_, .used = rows_});
  const Tensor du_down = down_adapter_.backward(c, p, da, d_o, segments(0));
  weigh_rows(c.stream, {.dweights = dweights, .da = da, .a = a_, .places = places_, .weights = weights_});
  bias_backward(c, p, g, d_o, down_bias_, dweights);
  down_.add_gradient(c, g, {.a = d_o, .b = a_, .offsets = offsets_, .used = rows_});
  down_adapter_.add_gradients(c, p, g, du_down, d_o, a_, segments(0));
  run(c.stream, activation_.backward(d_up, da, up_));  // 4
  bias_backward(c, p, g, d_up, gate_up_bias_);
  gate_up_.add_gradient(c, g, {.a = d_up, .b = x.values(), .offsets = offsets_, .rows = rows_});  // 3
  if (input_gradient) gate_up_.multiply(c, p, {.c = d_rows, .a = d_up, .offsets = offsets_, .used = rows_});
  const Tensor du_up = gate_up_adapter_.backward(c, p, input_gradient ? d_rows : Tensor{}, d_up, segments(0));
  gate_up_adapter_.add_gradients(c, p, g, du_up, d_up, x.values(), gathered(0));
}

Tensor ExpertMlp::add_shared(LayerCall& c, const ParamView& p, const Rows& x, const Tensor& r, bool output) {
  if (!shared_) return r;
  const int64_t N = x.count();
  const Tensor sum = output ? c.scratch.alloc(c.dtype, {N, hidden_}) : Tensor{};
  if (!shared_->gate) {
    shared_->mlp.forward(c, p, sum, x, r);
    return sum;
  }
  shared_->o = c.saved.alloc(c.dtype, {N, hidden_});
  shared_->logits = c.saved.alloc(DType::f32, {N, 1});
  shared_->mlp.forward(c, p, shared_->o, x, {});
  shared_->gate->forward(c, p, shared_->logits, x);
  if (!output) return {};
  gate_rows_forward(c.stream, {.y = sum, .x = shared_->o, .gate = shared_->logits, .addend = r});
  return sum;
}

void ExpertMlp::shared_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                                const Tensor& dy, const Rows& x) {
  if (!shared_->gate) return shared_->mlp.backward(c, p, g, dx, dy, x, true);
  const Tensor d_o = c.scratch.alloc(c.dtype, shared_->o.shape),
               dgate = c.scratch.alloc(DType::f32, shared_->logits.shape);
  gate_rows_backward(c.stream,
                     {.dx = d_o, .dgate = dgate, .dy = dy, .x = shared_->o, .gate = shared_->logits});
  shared_->mlp.backward(c, p, g, dx, d_o, x, true);
  shared_->gate->backward(c, p, g, dx, rounded(c, dgate), x, true);
}

void ExpertMlp::add_bias(LayerCall& c, const ParamView& p, const Tensor& x,
                         std::optional<ParamId> bias) const {
  if (bias) add_expert_bias(c.stream, {.x = x, .bias = p[*bias], .offsets = offsets_, .rows = rows_});
}

void ExpertMlp::bias_backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                              std::optional<ParamId> bias, const Tensor& dweights) const {
  if (!bias) return;
  const Tensor dbias = g[*bias];
  ExpertBiasBackward a{.dbias = dbias,
                       .dx = dx,
                       .offsets = offsets_,
                       .rows = rows_,
                       .accumulate = !dbias.empty() && g.accumulates(*bias)};
  if (!dweights.empty()) {
    a.dweights = dweights;
    a.bias = p[*bias];
    a.weights = weights_;
    a.places = places_;
    a.experts = chosen_;
  } else if (dbias.empty()) {
    return;
  }
  expert_bias_backward(c.stream, a);
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
                            .rule = rule_,
                            .factors = c.routing.factors,
                            .counts = c.routing.counts,
                            .losses = c.routing.losses});
  router_.backward(c, p, g, dx, rounded(c, dlogits), x, true);
}

namespace {

std::string prefix(const ModelConfig& config, int64_t layer) {
  return block_prefix(param_names(config.family), layer);
}

LinearSpec router_layer(const ModelConfig& config, int64_t layer) {
  return {prefix(config, layer) + param_names(config.family).router, config.hidden, config.experts,
          config.linear_bias};
}

}  // namespace

ExpertMlp::ExpertMlp(ParamList& params, const ModelConfig& config, int64_t layer)
    : layer_(layer),
      count_(config.experts),
      per_token_(config.experts_per_token),
      ffn_(config.expert_ffn),
      hidden_(config.hidden),
      share_(static_cast<double>(per_token_) / static_cast<double>(count_)),
      rule_{.sigmoid = config.sigmoid_router,
            .normalized = *config.norm_topk,
            .groups = config.expert_groups,
            .top_groups = config.top_groups,
            .scale = static_cast<float>(config.routed_scale)},
      activation_(config.mlp, *config.swiglu_limit),
      router_(params, config, {router_layer(config, layer)}) {
  const ParamNames& names = param_names(config.family);
  if (config.sigmoid_router)
    router_bias_ = params.add({.name = prefix(config, layer) + names.router_bias,
                               .shape = {count_},
                               .init = Init::constant(0),
                               .role = ParamRole::fixed,
                               .decay = false,
                               .trainable = false,
                               .dtype = DType::f32});
  names.interleaved_experts() ? declare_interleaved(params, config) : declare_experts(params, config);
  declare_adapters(params, config);
  declare_shared(params, config);
}

ExpertMlp::Layer ExpertMlp::layer_named(const ModelConfig& config, const std::string& name, int64_t in,
                                        int64_t out) const {
  Layer of_experts{.paths = {}, .in = in, .out = out};
  for (int64_t e = 0; e < count_; ++e)
    of_experts.paths.push_back(prefix(config, layer_) + of_expert(name, e));
  return of_experts;
}

// The format of the experts' weights; empty: they have the compute dtype.
std::optional<FourBitFormat> ExpertMlp::format_of(const ModelConfig& config,
                                                  const std::vector<Layer>& layers) {
  const auto format = [&](const std::string& path) {
    const auto found = config.quantized.find(path);
    return found == config.quantized.end() ? std::nullopt : std::optional(found->second);
  };
  const std::string& first = layers.front().paths.front();
  for (const Layer& layer : layers)
    for (const std::string& path : layer.paths)
      check(format(path) == format(first),
            "the experts of a block must all have 4-bit weights of one format, or none: ", path, " and ",
            first, " differ: check quant.skip");
  return format(first);
}

// The last layer is down, the others make up gate and up. Expert follows expert. With `transposed` the
// matrices are stored as (in, out).
void ExpertMlp::declare_matrices(ParamList& params, const ModelConfig& config,
                                 const std::vector<Layer>& layers, bool transposed) {
  const Init init = Init::normal(0.02f), last = Init::normal(init_std_to_stream(config));
  const std::optional<FourBitFormat> format = format_of(config, layers);
  const auto shape_of = [&](int64_t in, int64_t out) {
    return transposed ? Shape{count_, in, out} : Shape{count_, out, in};
  };
  const Shape gate_up = shape_of(hidden_, 2 * ffn_), down = shape_of(ffn_, hidden_);
  std::vector<ParamId> of_gate_up, of_down;
  std::vector<QuantizedParams> quantized_gate_up, quantized_down;
  for (size_t e = 0; e < static_cast<size_t>(count_); ++e)
    for (const Layer& layer : layers) {
      const bool is_down = &layer == &layers.back();
      const Shape shape = transposed ? Shape{layer.in, layer.out} : Shape{layer.out, layer.in};
      const Init& values = is_down ? last : init;
      if (format) {
        (is_down ? quantized_down : quantized_gate_up)
            .emplace_back(params, layer.paths[e], FourBitWeight{*format, shape[0], shape[1]}, values, share_);
        continue;
      }
      (is_down ? of_down : of_gate_up)
          .push_back(params.add({.name = layer.paths[e] + ".weight",
                                 .shape = shape,
                                 .init = values,
                                 .joined = !of_gate_up.empty(),
                                 .share = share_}));
    }
  const int64_t between = 3 * ffn_ * hidden_;
  gate_up_ = format ? ExpertMatrices(std::move(quantized_gate_up), gate_up, transposed)
                    : ExpertMatrices(std::move(of_gate_up), gate_up, between, transposed);
  down_ = format ? ExpertMatrices(std::move(quantized_down), down, transposed)
                 : ExpertMatrices(std::move(of_down), down, between, transposed);
}

void ExpertMlp::declare_interleaved(ParamList& params, const ModelConfig& config) {
  const ParamNames& names = param_names(config.family);
  const std::vector<Layer> layers{layer_named(config, names.expert_gate_up, hidden_, 2 * ffn_),
                                  layer_named(config, names.expert_down, ffn_, hidden_)};
  declare_matrices(params, config, layers, true);
  const auto biases = [&](const std::string& name, int64_t width) {
    return params.add({.name = prefix(config, layer_) + name,
                       .shape = {count_, width},
                       .init = Init::constant(0),
                       .role = ParamRole::bias,
                       .decay = false});
  };
  gate_up_bias_ = biases(names.all_gate_up_bias, 2 * ffn_);
  down_bias_ = biases(names.all_down_bias, hidden_);
}

void ExpertMlp::declare_experts(ParamList& params, const ModelConfig& config) {
  const ParamNames& names = param_names(config.family);
  const std::vector<Layer> layers{layer_named(config, names.expert_gate, hidden_, ffn_),
                                  layer_named(config, names.expert_up, hidden_, ffn_),
                                  layer_named(config, names.expert_down, ffn_, hidden_)};
  declare_matrices(params, config, layers, false);
}

// If both layers have adapters, that of gate and up is nested in PEFT's module of the other.
void ExpertMlp::declare_adapters(ParamList& params, const ModelConfig& config) {
  const std::string down_of_one =
                        prefix(config, layer_) + of_expert(param_names(config.family).expert_down, 0),
                    module = module_of_experts(down_of_one), down = adapted_layer(down_of_one);
  const bool nested = config.adapters.contains(down);
  gate_up_adapter_ = ExpertAdapter(params, config,
                                   {.path = module + kGateUpOfExperts,
                                    .name = nested ? module + ".base_layer" : module,
                                    .in = hidden_,
                                    .out = 2 * ffn_},
                                   share_);
  down_adapter_ =
      ExpertAdapter(params, config, {.path = down, .name = module, .in = ffn_, .out = hidden_}, share_);
}

void ExpertMlp::declare_shared(ParamList& params, const ModelConfig& config) {
  if (config.shared_ffn == 0) return;
  const ParamNames& names = param_names(config.family);
  const std::string in_block = prefix(config, layer_);
  const LinearSpec up{in_block + names.shared_up, hidden_, config.shared_ffn};
  LinearSpec gate = up, down{in_block + names.shared_down, config.shared_ffn, hidden_};
  gate.path = in_block + names.shared_gate;
  down.init_std = init_std_to_stream(config);
  shared_.emplace(Shared{.mlp = Mlp(params, config, {gate, up}, down)});
  if (!names.shared_switch.empty())
    shared_->gate.emplace(params, config,
                          std::vector<LinearSpec>{{in_block + names.shared_switch, hidden_, 1}});
}

}  // namespace flatshard
