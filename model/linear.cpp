#include "model/linear.h"

#include "kernels/gemm.h"

namespace flatshard {

Linear::Linear(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& layers) {
  for (const LinearSpec& spec : layers) {
    const Shape shape = spec.transposed ? Shape{spec.in, spec.out} : Shape{spec.out, spec.in};
    Layer layer{
        .w = params.add({.name = spec.path + ".weight", .shape = shape, .init = Init::normal(spec.init_std)}),
        .b = {},
        .bias = spec.bias,
        .transposed = spec.transposed};
    if (spec.bias)
      layer.b = params.add({.name = spec.path + ".bias",
                            .shape = {spec.out},
                            .init = Init::constant(0),
                            .role = ParamRole::bias});
    layers_.push_back(layer);
  }
  std::vector<AdaptedLayer> adapted;
  for (size_t i = 0; i < layers.size(); ++i)
    if (const auto found = config.adapters.find(layers[i].path); found != config.adapters.end())
      adapted.push_back({i, layers[i].path, layers[i].in, layers[i].out, found->second});
  adapters_ = LayerAdapters(params, std::move(adapted));
}

void Linear::forward(Context& c, const ParamView& p, std::initializer_list<Tensor> y, const Tensor& x,
                     bool accumulate) {
  const Tensor* out = y.begin();
  for (const Layer& layer : layers_)
    gemm(c.stream, c.scratch,
         {.c = *out++,
          .a = x,
          .b = p[layer.w],
          .bias = layer.bias ? p[layer.b] : Tensor{},
          .transpose_b = !layer.transposed,
          .accumulate = accumulate,
          .tf32 = c.tf32});
  adapters_.forward(c, p, y, x);
}

void Linear::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                      std::initializer_list<Tensor> dy, const Tensor& x) const {
  bool accumulate = false;
  const Tensor* out = dy.begin();
  for (const Layer& layer : layers_) {
    if (!g[layer.w].empty()) {
      gemm(c.stream, c.scratch,
           {.c = g[layer.w],
            .a = layer.transposed ? x : *out,
            .b = layer.transposed ? *out : x,
            .transpose_a = true,
            .accumulate = true,
            .tf32 = c.tf32});
    }
    if (layer.bias && !g[layer.b].empty()) bias_backward(c.stream, c.scratch, {.db = g[layer.b], .dy = *out});
    if (!dx.empty())
      gemm(c.stream, c.scratch,
           {.c = dx,
            .a = *out,
            .b = p[layer.w],
            .transpose_b = layer.transposed,
            .accumulate = accumulate,
            .tf32 = c.tf32});
    accumulate = true;
    ++out;
  }
  adapters_.backward(c, p, g, dx, dy, x);
}

}  // namespace flatshard
