#pragma once
// RMSNorm or LayerNorm as a layer: its parameters and the statistics saved for the backward pass.

#include <string>

#include "model/config.h"
#include "model/context.h"
#include "runtime/param.h"

namespace flatshard {

class Norm {
 public:
  Norm() = default;  // no norm
  // Declares prefix.weight and, for LayerNorm, prefix.bias.
  Norm(ParamList& params, const ModelConfig& config, const std::string& prefix, NormKind kind, int64_t size);

  // y = norm(x) over the last dimension.
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x);
  // dx = the gradient of x, or dx += with accumulate. Adds the gradients of w and b to g, where their tensors
  // are not empty.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, bool accumulate);
  bool is_trained(const GradView& g) const;  // false if there is no norm
  bool exists() const { return size_ > 0; }

 private:
  NormKind kind_ = NormKind::rms;
  int64_t size_ = 0;
  float eps_ = 0, offset_ = 0;
  bool rounds_ = true;
  ParamId w_, b_;
  Tensor rstd_, mean_;
};

}  // namespace flatshard
