#pragma once
// A linear layer, y = x w^T + b. The weight lies as (out, in), or as (in, out) where the family stores it so
// (GPT-2).

#include <string>

#include "model/context.h"
#include "runtime/param.h"

namespace flatshard {

struct LinearSpec {
  int64_t in, out;
  bool bias = false;
  bool stored_in_out = false;
  float deviation = 0.02f;  // of the initial weights
};

class Linear {
 public:
  Linear() = default;
  // Declares prefix.weight (and prefix.bias).
  Linear(ParamList& params, const std::string& prefix, const LinearSpec& spec);

  // y = x w^T + b, or y += where the residual stream is added to. x (N, in), y (N, out).
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x,
               bool accumulate = false) const;
  // dx = dy w, or dx +=; the gradients of w and b are added to g where it has them.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, bool accumulate = false) const;

 private:
  LinearSpec spec_{};
  ParamId w_, b_;
};

}  // namespace flatshard
