#include "model/linear.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/four_bit_product.h"
#include "kernels/packed.h"

namespace flatshard {
namespace {

// Whether parameters of these sizes are joined. In a flat buffer a parameter begins at a multiple of 256
// elements, a block of 8-bit moments: parameters that begin elsewhere would share blocks, and their unit
// would keep fp32 moments.
bool can_join(const std::vector<int64_t>& sizes) {
  constexpr int64_t kBlock = 256;
  return std::all_of(sizes.begin(), sizes.end() - 1, [](int64_t size) { return size % kBlock == 0; });
}

}  // namespace

Linear::Linear(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& specs)
    : params_(&params) {
  declare_weights(params, config, specs);
  declare_biases(params, specs);
  std::vector<AdaptedLayer> adapted;
  for (size_t i = 0; i < specs.size(); ++i)
    if (const auto found = config.adapters.find(specs[i].path); found != config.adapters.end())
      adapted.push_back({layers_[i].column, specs[i].path, specs[i].in, specs[i].out, found->second});
  adapters_ = LayerAdapters(params, std::move(adapted));
}

void Linear::declare_weights(ParamList& params, const ModelConfig& config,
                             const std::vector<LinearSpec>& specs) {
  const auto format_of = [&](const LinearSpec& spec) {
    const auto found = config.quantized.find(spec.path);
    return found == config.quantized.end() ? std::nullopt : std::optional(found->second);
  };
  std::vector<int64_t> sizes;
  bool alike = true;
  for (const LinearSpec& spec : specs) {
    sizes.push_back(spec.in * spec.out);
    alike = alike && format_of(spec) == format_of(specs.front());
  }
  const bool joins = alike && can_join(sizes);
  one_quantized_ = joins && format_of(specs.front());
  for (const LinearSpec& spec : specs) {
    const Init init = Init::normal(spec.init_std);
    Layer layer{.column = width_, .out = spec.out, .transposed = spec.transposed};
    ParamId w;
    if (const auto format = format_of(spec))
      layer.quantized.emplace(params, spec.path, FourBitWeight{*format, spec.out, spec.in}, init);
    else
      w = params.add({.name = spec.path + ".weight",
                      .shape = spec.transposed ? Shape{spec.in, spec.out} : Shape{spec.out, spec.in},
                      .init = init,
                      .joined = joins && !w_.empty()});
    w_.push_back(w);
    layers_.push_back(layer);
    width_ += spec.out;
  }
}

void Linear::declare_biases(ParamList& params, const std::vector<LinearSpec>& specs) {
  if (!specs.front().bias) return;
  std::vector<int64_t> sizes;
  for (const LinearSpec& spec : specs) sizes.push_back(spec.out);
  const bool joins = can_join(sizes);
  for (const LinearSpec& spec : specs)
    b_.push_back(params.add({.name = spec.path + ".bias",
                             .shape = {spec.out},
                             .init = Init::constant(0),
                             .role = ParamRole::bias,
                             .joined = joins && !b_.empty()}));
}

bool Linear::are_one_matrix() const { return one_quantized_ || are_joined(w_); }

bool Linear::are_joined(const std::vector<ParamId>& ids) const {
  return std::all_of(ids.begin() + 1, ids.end(),
                     [&](ParamId id) { return id.index >= 0 && (*params_)[id].joined; });
}

std::vector<Linear::Run> Linear::runs(bool joined) const {
  if (joined) return {{0, layers_.size()}};
  std::vector<Run> each;
  for (size_t i = 0; i < layers_.size(); ++i) each.push_back({i, i + 1});
  return each;
}

Tensor Linear::columns(const Tensor& y, Run run) const {
  if (y.empty()) return y;
  const Layer &first = layers_[run.begin], &last = layers_[run.end - 1];
  return packed_columns(y, first.column, {y.shape[0], last.column + last.out - first.column});
}

std::span<const ParamId> Linear::ids_of(const std::vector<ParamId>& all, Run run) {
  return std::span(all).subspan(run.begin, run.end - run.begin);
}

void Linear::multiply(Context& c, const ParamView& p, Run run, const Gemm& product, bool backward) const {
  const Layer& layer = layers_[run.begin];
  if (layer.quantized) {
    std::vector<FourBitMatrix> w;
    for (size_t i = run.begin; i < run.end; ++i) w.push_back(layers_[i].quantized->matrix(p));
    return four_bit_product(c.stream, c.scratch,
                            {.c = product.c,
                             .a = product.a,
                             .w = std::move(w),
                             .bias = product.bias,
                             .addend = product.addend,
                             .transpose_w = !backward,
                             .accumulate = product.accumulate,
                             .compute = layer.quantized->format().compute,
                             .tf32 = c.tf32,
                             .a_stride = product.a_stride,
                             .c_stride = product.c_stride});
  }
  Gemm g = product;
  g.b = p.joined(ids_of(w_, run));
  g.transpose_b = layer.transposed == backward;
  g.tf32 = c.tf32;
  gemm(c.stream, c.scratch, g);
}

void Linear::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, const Tensor& addend) {
  const bool has_bias = !b_.empty();
  for (const Run run : runs(are_one_matrix() && (!has_bias || are_joined(b_))))
    multiply(c, p, run,
             {.c = columns(y, run),
              .a = x,
              .b = {},
              .bias = has_bias ? p.joined(ids_of(b_, run)) : Tensor{},
              .addend = columns(addend, run),
              .c_stride = width_},
             false);
  adapters_.forward(c, p, y, x);
}

void Linear::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                      const Tensor& x, bool accumulate) const {
  const std::vector<Run> matrices = runs(are_one_matrix());
  for (const Run run : matrices) {
    const Layer& layer = layers_[run.begin];
    const Tensor dw = layer.quantized ? Tensor{} : g.joined(ids_of(w_, run));
    if (dw.empty()) continue;
    const Tensor out = columns(dy, run);
    gemm(c.stream, c.scratch,
         {.c = dw,
          .a = layer.transposed ? x : out,
          .b = layer.transposed ? out : x,
          .transpose_a = true,
          .accumulate = g.accumulates(ids_of(w_, run)),
          .tf32 = c.tf32,
          .a_stride = layer.transposed ? 0 : width_,
          .b_stride = layer.transposed ? width_ : 0});
  }
  if (!b_.empty())
    for (const Run run : runs(are_joined(b_)))
      if (const Tensor db = g.joined(ids_of(b_, run)); !db.empty())
        bias_backward(c.stream, c.scratch,
                      {.db = db,
                       .dy = columns(dy, run),
                       .accumulate = g.accumulates(ids_of(b_, run)),
                       .dy_stride = width_});
  if (!dx.empty())
    for (const Run run : matrices)
      multiply(c, p, run,
               {.c = dx,
                .a = columns(dy, run),
                .b = {},
                .accumulate = accumulate || run.begin > 0,
                .a_stride = width_},
               true);
  adapters_.backward(c, p, g, dx, dy, x);
}

}  // namespace flatshard
