#pragma once
// Counts the steps that made no update, for lack of targets or of finite gradients, and ends a run that no
// longer trains.

#include <cstdint>

namespace flatshard {

class SkippedSteps {
 public:
  // What a step measured. Every rank has the same values, so all of them fail or continue together.
  struct Outcome {
    int64_t step;  // the number of the update that it makes
    double loss, grad_norm;
    bool finite, skipped;
  };

  // An Error if the loss or the gradient is not finite, unless such steps may be skipped, or if too many in a
  // row were skipped.
  void add(const Outcome& outcome, bool may_skip);

  int64_t in_a_row() const { return in_a_row_; }
  void restore(int64_t in_a_row) { in_a_row_ = in_a_row; }

 private:
  int64_t in_a_row_ = 0;
};

}  // namespace flatshard
