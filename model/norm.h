#pragma once
// RMSNorm or LayerNorm as a layer: its parameters, and the statistics it keeps for the backward pass.

#include <string>

#include "model/config.h"
#include "model/context.h"
#include "runtime/param.h"

namespace flatshard {

class Norm {
 public:
  Norm() = default;
  // Declares its parameters in `params` under prefix.weight (and prefix.bias).
  Norm(ParamList& params, const std::string& prefix, NormKind kind, int64_t size, double eps);

  // y = norm(x) over the last dimension.
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x);
  // dx += its gradient, or dx = where accumulate is false; weight gradients are added to g where it has them.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, bool accumulate);

 private:
  NormKind kind_ = NormKind::rms;
  int64_t size_ = 0;
  float eps_ = 0;
  ParamId w_, b_;
  Tensor rstd_, mean_;
};

}  // namespace flatshard
