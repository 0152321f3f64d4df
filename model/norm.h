#pragma once
// Norms as layers: their parameters and the statistics saved for the backward pass.

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

  // y = norm(x) over the last dimension, plus an addend like x, if there is one; only RMSNorm supports an
  // addend. Rows of y may have spare columns (linear.h).
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, const Tensor& addend = {});
  // Computes y again, from the x of forward(), which had no addend.
  void forward_again(Context& c, const ParamView& p, const Tensor& y, const Tensor& x) const;
  // dx = the gradient of x, or dx += with accumulate. Adds the gradients of w and b to the tensors in g that
  // are not empty.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, bool accumulate);
  bool is_trained(const GradView& g) const;  // false if there is no norm
  bool exists() const { return size_ > 0; }

 private:
  void normalize(Context& c, const ParamView& p, const Tensor& y, const Tensor& x,
                 const Tensor& addend) const;

  NormKind kind_ = NormKind::rms;
  int64_t size_ = 0;
  float eps_ = 0, offset_ = 0;
  bool rounds_ = true;
  ParamId w_, b_;
  Tensor rstd_, mean_;
};

// RMSNorm of the heads of q and k, which a packed projection has before the heads of v, and their rotation
// (kernels/qk_norm.h).
class QkNorm {
 public:
  QkNorm() = default;
  // Declares q_prefix.weight and k_prefix.weight.
  QkNorm(ParamList& params, const ModelConfig& config, const std::string& q_prefix,
         const std::string& k_prefix);

  // Computes y (N, query heads + key heads, D) from the packed projection (N, heads, D). An empty table means
  // no rotation.
  void forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& packed, const Tensor& table);
  // Computes y again, from the `packed` and the table of forward().
  void forward_again(Context& c, const ParamView& p, const Tensor& y, const Tensor& packed,
                     const Tensor& table) const;
  // Works in place: the heads of q and k in d, which is packed, are gradients of y on entry and gradients of
  // `packed` on return.
  void backward(Context& c, const ParamView& p, const GradView& g, const Tensor& d, const Tensor& packed,
                const Tensor& table) const;
  bool exists() const { return query_heads_ > 0; }

 private:
  Tensor heads_of(const Tensor& packed) const;

  int64_t query_heads_ = 0, heads_ = 0;  // heads_: heads of q and k
  int64_t rows_ = 0;                     // separately normalized rows of a token
  float eps_ = 0, offset_ = 0;
  bool rounds_ = true;
  ParamId wq_, wk_;
  Tensor rstd_;
};

}  // namespace flatshard
