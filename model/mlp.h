#pragma once
// The MLP of a block. block.cpp has its code, among the other steps of a block.

#include <vector>

#include "model/activation.h"
#include "model/linear.h"

namespace flatshard {

// Steps 7 to 9 of a block (block.h), which layers of vision.h and shared experts have, too.
class Mlp {
 public:
  Mlp(ParamList& params, const ModelConfig& config, int64_t layer);  // the MLP of a block
  // An MLP of these layers: `up` is gate and up, or up alone; the output of `down` may have another width
  // than x.
  Mlp(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& up,
      const LinearSpec& down);

  // y = mlp(x) + r, where r is empty or like y. Without y, only what the backward pass needs.
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Rows& x, const Tensor& r);
  // dx = the gradient of x, given dy, or dx += with accumulate.
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Rows& x, bool accumulate);
  Linear& reader() { return w_up_; }  // reads x

 private:
  Activation activation_;
  Linear w_up_, w_down_;  // w_up: gate and up, or up
  Rows up_, a_;
};

}  // namespace flatshard
