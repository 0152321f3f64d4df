#pragma once
// A linear layer, y = x w^T + b. The weight is stored as (out, in), or transposed as (in, out) in GPT-2.

#include <string>

#include "model/context.h"
#include "runtime/param.h"

namespace flatshard {

struct LinearSpec {
  int64_t in, out;
  bool bias = false;
  bool transposed = false;  // the weight is (in, out)
  float init_std = 0.02f;   // standard deviation of the initial weights
};

class Linear {
 public:
  Linear() = default;
  // Declares prefix.weight and, with a bias, prefix.bias.
  Linear(ParamList& params, const std::string& prefix, const LinearSpec& spec);

  // y = x w^T + b, or y += with accumulate. x (N, in), y (N, out).
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x,
               bool accumulate = false) const;
  // dx = dy w, or dx += with accumulate. Adds the gradients of w and b to g, where their tensors are not
  // empty.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, bool accumulate = false) const;

 private:
  LinearSpec spec_{};
  ParamId w_, b_;
};

}  // namespace flatshard
