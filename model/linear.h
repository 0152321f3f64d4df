#pragma once
// Linear layers that read the same input, for example q, k and v: y_i = x w_i^T + b_i. A weight is stored as
// (out, in), or transposed as (in, out) in GPT-2. A layer that the model's config quantizes has a 4-bit
// weight instead (quantization.h), and one for which it has an adapter adds the adapter's update
// (adapter.h).

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "model/adapter.h"
#include "model/config.h"
#include "model/context.h"
#include "model/quantization.h"
#include "runtime/param.h"

namespace flatshard {

struct LinearSpec {
  std::string path;  // of its parameters: path.weight and, with a bias, path.bias
  int64_t in, out;
  bool bias = false;
  bool transposed = false;  // the weight is (in, out)
  float init_std = 0.02f;   // standard deviation of the initial weights
};

class Linear {
 public:
  Linear() = default;
  Linear(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& layers);

  // y_i = x w_i^T + b_i, plus an addend like y_i, if there is one. x (N, in), y_i (N, out of layer i).
  void forward(Context& c, const ParamView& p, std::initializer_list<Tensor> y, const Tensor& x,
               const Tensor& addend = {});
  // dx = the sum of dy_i w_i, unless dx is empty. Adds the gradients of parameters to g, where their tensors
  // are not empty.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                std::initializer_list<Tensor> dy, const Tensor& x) const;

 private:
  struct Layer {
    ParamId w, b;
    bool bias, transposed;
    std::optional<QuantizedParams> quantized{};  // instead of w
  };
  // c = a w^T + b + addend, or with backward a w + addend.
  void multiply(Context& c, const ParamView& p, const Layer& layer, const Tensor& y, const Tensor& a,
                bool backward, const Tensor& addend, bool accumulate) const;

  std::vector<Layer> layers_;
  LayerAdapters adapters_;
};

}  // namespace flatshard
