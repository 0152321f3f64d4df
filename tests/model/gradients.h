#pragma once
// The gradients of a unit's parameters, for tests that call a single layer.

#include <vector>

#include "runtime/param.h"

namespace flatshard::test {

class Gradients {
 public:
  // If `written`, the tensors contain earlier gradients, and new ones are added to them.
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
