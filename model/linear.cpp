#include "model/linear.h"

#include "kernels/four_bit_product.h"
#include "kernels/gemm.h"

namespace flatshard {

Linear::Linear(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& layers) {
  for (const LinearSpec& spec : layers) {
    const Init init = Init::normal(spec.init_std);
    Layer layer{.w = {}, .b = {}, .bias = spec.bias, .transposed = spec.transposed};
    if (const auto found = config.quantized.find(spec.path); found != config.quantized.end())
      layer.quantized.emplace(params, spec.path, FourBitWeight{found->second, spec.out, spec.in}, init);
    else
      layer.w = params.add({.name = spec.path + ".weight",
                            .shape = spec.transposed ? Shape{spec.in, spec.out} : Shape{spec.out, spec.in},
                            .init = init});
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

void Linear::multiply(Context& c, const ParamView& p, const Layer& layer, const Tensor& y, const Tensor& a,
                      bool backward, const Tensor& addend, bool accumulate) const {
  const Tensor bias = layer.bias && !backward ? p[layer.b] : Tensor{};
  if (layer.quantized)
    return four_bit_product(c.stream, c.scratch,
                            {.c = y,
                             .a = a,
                             .w = layer.quantized->matrix(p),
                             .bias = bias,
                             .addend = addend,
                             .transpose_w = !backward,
                             .accumulate = accumulate,
                             .compute = layer.quantized->format().compute,
                             .tf32 = c.tf32});
  gemm(c.stream, c.scratch,
       {.c = y,
        .a = a,
        .b = p[layer.w],
        .bias = bias,
        .addend = addend,
        .transpose_b = layer.transposed == backward,
        .accumulate = accumulate,
        .tf32 = c.tf32});
}

void Linear::forward(Context& c, const ParamView& p, std::initializer_list<Tensor> y, const Tensor& x,
                     const Tensor& addend) {
  const Tensor* out = y.begin();
  for (const Layer& layer : layers_) multiply(c, p, layer, *out++, x, false, addend, false);
  adapters_.forward(c, p, y, x);
}

void Linear::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                      std::initializer_list<Tensor> dy, const Tensor& x) const {
  bool accumulate = false;
  const Tensor* out = dy.begin();
  for (const Layer& layer : layers_) {
    if (!layer.quantized && !g[layer.w].empty()) {
      gemm(c.stream, c.scratch,
           {.c = g[layer.w],
            .a = layer.transposed ? x : *out,
            .b = layer.transposed ? *out : x,
            .transpose_a = true,
            .accumulate = true,
            .tf32 = c.tf32});
    }
    if (layer.bias && !g[layer.b].empty()) bias_backward(c.stream, c.scratch, {.db = g[layer.b], .dy = *out});
    if (!dx.empty()) multiply(c, p, layer, dx, *out, true, {}, accumulate);
    accumulate = true;
    ++out;
  }
  adapters_.backward(c, p, g, dx, dy, x);
}

}  // namespace flatshard
