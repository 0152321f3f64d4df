#pragma once
// Norms as layers: their parameters and the statistics saved for the backward pass; and the norms before and
// after the halves of a block, which a family may lack.

#include <string>

#include "model/config.h"
#include "model/layer_call.h"
#include "model/linear.h"
#include "model/rows.h"
#include "runtime/param.h"

namespace flatshard {

// Declares a weight or a bias of a norm, with this initial value.
ParamId declare_norm(ParamList& params, const ModelConfig& config, const std::string& name, int64_t size,
                     float value);

class Norm {
 public:
  Norm() = default;  // no norm
  // Declares prefix.weight and, for LayerNorm, prefix.bias.
  Norm(ParamList& params, const ModelConfig& config, const std::string& prefix, NormKind kind, int64_t size);

  // y = norm(x) of each row, plus an addend like x, if there is one; only RMSNorm supports an addend.
  void forward(LayerCall& c, const ParamView& p, const Rows& y, const Tensor& x, const Tensor& addend = {});
  // Computes y again, from the x of forward(), which had no addend.
  void forward_again(LayerCall& c, const ParamView& p, const Rows& y, const Tensor& x) const;
  // dx = the gradient of x, or dx += with accumulate. Adds the gradients of w and b to the tensors in g that
  // are not empty.
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dy,
                const Tensor& x, bool accumulate) const;
  bool is_trained(const GradView& g) const;  // false if there is no norm
  bool exists() const { return size_ > 0; }

 private:
  void normalize(LayerCall& c, const ParamView& p, const Rows& y, const Tensor& x,
                 const Tensor& addend) const;

  NormKind kind_ = NormKind::rms;
  int64_t size_ = 0;
  float eps_ = 0, offset_ = 0;
  bool rounds_ = true;
  ParamId w_, b_;
  Tensor rstd_, mean_;
};

// The norm before a half of a block: h = norm(x), or x itself without a norm.
class InputNorm {
 public:
  explicit InputNorm(const Norm& norm) : norm_(norm) {}

  // Returns h for the layer that reads it. With LayerCall::recomputes_ops it is in scratch, not saved.
  Rows forward(LayerCall& c, const ParamView& p, const Tensor& x, const Linear& reader);
  // Returns h for the backward pass: the saved one, or with LayerCall::recomputes_ops another with the same
  // values.
  Rows again(LayerCall& c, const ParamView& p, const Tensor& x, const Rows& h, Linear& reader) const;
  // The tensor for the gradient of h: without a norm dx, to which the reader adds; empty if none is needed.
  Tensor gradient(LayerCall& c, const GradView& g, const Tensor& dx) const;
  // Adds the gradient of x to dx, given that tensor.
  void backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx, const Tensor& dh,
                const Tensor& x) const;
  bool exists() const { return norm_.exists(); }

 private:
  bool wants_gradient(const LayerCall& c, const GradView& g) const {
    return c.input_gradient || norm_.is_trained(g);
  }

  Norm norm_;
};

// The end of a half of a block: y = x + factor norm(o), where o is the output of its last product. Without a
// norm or a factor, that product writes y, with x as its addend.
class ResidualSum {
 public:
  ResidualSum(const Norm& norm, float factor) : norm_(norm), factor_(factor) {}

  // What the product writes, and what it adds.
  Tensor output(LayerCall& c, const Tensor& y);
  Tensor addend(const Tensor& x) const { return product_adds() ? x : Tensor{}; }
  void forward(LayerCall& c, const ParamView& p, const Tensor& y, const Tensor& x);
  // Whether the backward pass reads o.
  bool reads_output() const { return norm_.exists(); }
  // Returns the gradient of o.
  Tensor backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dy) const;

 private:
  bool product_adds() const { return !norm_.exists() && factor_ == 1; }

  Norm norm_;
  float factor_;
  Tensor o_;
};

}  // namespace flatshard
