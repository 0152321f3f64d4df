#pragma once
// The MLP of a block: down(silu(gate(x)) up(x)), or down(gelu(up(x))), added to the residual stream.

#include "model/config.h"
#include "model/context.h"
#include "model/linear.h"

namespace flatshard {

class Mlp {
 public:
  Mlp(ParamList& params, const ModelConfig& config, int64_t layer);

  // y += mlp(x); x and y are (N, hidden).
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x);
  // dx = the gradient for x, given dy.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x);

 private:
  MlpKind kind_;
  int64_t ffn_;
  Linear in_, out_;            // gate and up, or up; down
  Tensor gate_, up_, hidden_;  // gate(x), up(x) and the input of down
};

}  // namespace flatshard
