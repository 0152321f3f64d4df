#pragma once
// The gradients of a unit's parameters, for tests that call a layer or a layer.

#include <vector>

#include "runtime/param.h"

namespace flatshard::test {

class Gradients {
 public:
  // With `written`, the tensors hold earlier gradients to add to.
  explicit Gradients(const std::vector<Tensor>& tensors, bool written = false) {
    for (const Tensor& tensor : tensors) all_.push_back({tensor, written});
    for (Gradient& gradient : all_) pointers_.push_back(&gradient);
  }
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  GradView view() const { return GradView(pointers_); }

 private:
  std::vector<Gradient> all_;
  std::vector<Gradient*> pointers_;
};

}  // namespace flatshard::test
