#pragma once
// Parameters as a model declares them: a name, a shape, an initializer, training attributes, and an id.
// Layers hold ids, never pointers: the ParamView passed to each call says where a parameter's values are at
// that moment, for example in a gather slot or a host buffer.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/tensor.h"

namespace flatshard {

// The distribution of a parameter's initial values: constant(0), normal(0.02), uniform(0.1) (symmetric around
// zero).
struct Init {
  enum class Kind { constant, normal, uniform };
  Kind kind = Kind::constant;
  float value = 0.0f;  // the constant, the standard deviation, or the bound

  static constexpr Init constant(float value) { return {Kind::constant, value}; }
  static constexpr Init normal(float deviation) { return {Kind::normal, deviation}; }
  static constexpr Init uniform(float bound) { return {Kind::uniform, bound}; }
};

// The role of a parameter in its layer. The bias of a norm has the role `norm`.
// `quantized` is a part of a quantized weight: its codes, scales or tables. `fixed` has no gradient, and is
// fp32 in all files.
enum class ParamRole { weight, bias, norm, embedding, adapter, quantized, fixed };

struct ParamSpec {
  std::string name;
  Shape shape;
  Init init;
  ParamRole role = ParamRole::weight;
  bool decay = true;      // weight decay applies
  bool trainable = true;  // the parameter has a gradient and optimizer state
  // Directly follows the previous parameter in memory, so that both are one matrix. Both are trainable and
  // decayed, or neither is.
  bool joined = false;
  // The dtype of a frozen parameter that is stored in its own dtype and never cast; empty: the compute dtype.
  std::optional<DType> dtype{};
  // The number of model parameters that this one counts as; empty: one for each element.
  std::optional<int64_t> counts_as{};
  double share = 1;  // of the tokens that are multiplied with it: below 1 for an expert

  int64_t parameter_count() const { return counts_as.value_or(shape.size()); }
};

struct ParamId {
  int index = -1;
};

// The parameters of one unit, in declaration order. Names are unique.
class ParamList {
 public:
  ParamId add(ParamSpec spec);
  const ParamSpec& operator[](ParamId id) const { return specs_[static_cast<size_t>(id.index)]; }
  const std::vector<ParamSpec>& specs() const { return specs_; }
  std::vector<ParamSpec>& specs() { return specs_; }
  int64_t parameter_count() const;

 private:
  std::vector<ParamSpec> specs_;
};

// The values of a unit's parameters, valid during one call.
class ParamView {
 public:
  ParamView() = default;
  explicit ParamView(std::span<const Tensor> tensors) : tensors_(tensors) {}
  const Tensor& operator[](ParamId id) const { return tensors_[static_cast<size_t>(id.index)]; }
  size_t size() const { return tensors_.size(); }
  // Consecutive joined parameters, which differ only in their number of rows, as one matrix.
  Tensor joined(std::span<const ParamId> ids) const;

 private:
  std::span<const Tensor> tensors_;
};

// The gradient of a parameter in one lane. The gradient of a frozen parameter has no tensor.
struct Gradient {
  Tensor tensor{};
  bool written = false;  // until an op writes it, the memory is undefined
};

// The gradients of a unit's parameters, valid during one call. The first op of a lane that computes the
// gradient of a parameter writes it, later ones add to it, so that nothing has to be cleared.
class GradView {
 public:
  GradView() = default;
  explicit GradView(std::span<Gradient* const> gradients) : gradients_(gradients) {}
  const Tensor& operator[](ParamId id) const { return of(id).tensor; }
  // The gradients of consecutive joined parameters as one matrix, as in ParamView.
  Tensor joined(std::span<const ParamId> ids) const;
  // Returns whether the op that is enqueued next must add to these gradients, and marks them as written.
  // Every op that computes them calls this once.
  bool accumulates(std::span<const ParamId> ids) const;
  bool accumulates(ParamId id) const { return accumulates({&id, 1}); }

 private:
  Gradient& of(ParamId id) const { return *gradients_[static_cast<size_t>(id.index)]; }

  std::span<Gradient* const> gradients_;
};

}  // namespace flatshard
