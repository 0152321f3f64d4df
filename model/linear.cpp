#include "model/linear.h"

#include "kernels/gemm.h"

namespace flatshard {

Linear::Linear(ParamList& params, const std::string& prefix, const LinearSpec& spec) : spec_(spec) {
  const Shape shape = spec.transposed ? Shape{spec.in, spec.out} : Shape{spec.out, spec.in};
  w_ = params.add({.name = prefix + ".weight", .shape = shape, .init = Init::normal(spec.init_std)});
  if (spec.bias)
    b_ = params.add(
        {.name = prefix + ".bias", .shape = {spec.out}, .init = Init::constant(0), .role = ParamRole::bias});
}

void Linear::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x,
                     bool accumulate) const {
  gemm(c.stream, c.scratch,
       {.c = y,
        .a = x,
        .b = p[w_],
        .bias = spec_.bias ? p[b_] : Tensor{},
        .transpose_b = !spec_.transposed,
        .accumulate = accumulate,
        .tf32 = c.tf32});
}

void Linear::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                      const Tensor& x, bool accumulate) const {
  if (!g[w_].empty()) {
    const bool transposed = spec_.transposed;
    gemm(c.stream, c.scratch,
         {.c = g[w_],
          .a = transposed ? x : dy,
          .b = transposed ? dy : x,
          .transpose_a = true,
          .accumulate = true,
          .tf32 = c.tf32});
  }
  if (spec_.bias && !g[b_].empty()) bias_backward(c.stream, c.scratch, {.db = g[b_], .dy = dy});
  gemm(c.stream, c.scratch,
       {.c = dx,
        .a = dy,
        .b = p[w_],
        .transpose_b = spec_.transposed,
        .accumulate = accumulate,
        .tf32 = c.tf32});
}

}  // namespace flatshard
