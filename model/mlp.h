#pragma once
// The MLP of a block: down(f(gate(x)) up(x)) with f = silu or gelu, or down(gelu(up(x))), by a kind of GELU.

#include "kernels/swiglu.h"
#include "model/config.h"
#include "model/context.h"
#include "model/linear.h"

namespace flatshard {

class Mlp {
 public:
  Mlp(ParamList& params, const ModelConfig& config, int64_t layer);  // the MLP of a block
  // An MLP of these layers: `in` is gate and up, or up alone; `out` is down, whose output may have another
  // width than x.
  Mlp(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& in, const LinearSpec& out);

  // y = mlp(x) + r, where r is empty or like y; x may have spare columns (linear.h).
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, const Tensor& r);
  // dx = the gradient of x, given dy, or dx += with accumulate.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, bool accumulate);
  int64_t spare_of_x(const Context& c, int64_t rows) const { return in_.spare_of_x(c, rows); }
  void restore_spare_columns(Context& c, const ParamView& p, const Tensor& x) {
    in_.restore_spare_columns(c, p, x);
  }

 private:
  Tensor allocate_hidden(Context& c, Arena& arena, int64_t rows) const;
  void activate(Context& c) const;  // computes hidden_ from projected_

  MlpKind kind_;
  int64_t ffn_;
  Linear in_, out_;   // in_: gate and up, or up; out_: down
  Tensor projected_;  // gate(x) and up(x) side by side, or up(x)
  Tensor hidden_;     // the input of down, with spare columns; not saved with Context::recompute
};

}  // namespace flatshard
