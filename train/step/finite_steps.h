#pragma once
// Steps whose loss or gradients are not finite: the loss scale, which keeps fp16 gradients from underflowing,
// and the end of a run that no longer trains.

#include <cstdint>
#include <string>

#include "runtime/dtype.h"

namespace flatshard {

// A dynamic scale starts at 2^16, doubles after 2000 consecutive finite steps, and halves at a step with
// nonfinite gradients, which is skipped. For other dtypes than fp16 it is always 1.
class LossScale {
 public:
  static constexpr double kInitial = 65536.0;
  static constexpr int64_t kGrowEvery = 2000;

  // `setting` is "dynamic" or a positive number; a number is an Error unless compute is f16.
  LossScale(DType compute, const std::string& setting);

  double value() const { return value_; }
  bool in_use() const { return in_use_; }
  bool dynamic() const { return dynamic_; }
  int64_t good_steps() const { return good_steps_; }  // finite steps since the scale last changed
  // Restores the state of a checkpoint.
  void restore(double value, int64_t good_steps) {
    value_ = value;
    good_steps_ = good_steps;
  }
  // Called after every step. An Error if the scale would fall below 1.
  void update(bool finite);

 private:
  bool in_use_ = false, dynamic_ = false;
  double value_ = 1.0;
  int64_t good_steps_ = 0;
};

// Counts the steps that made no update, for lack of targets or of finite gradients.
class SkippedSteps {
 public:
  // The measurements of a step. Every rank has the same values, so all of them fail or continue together.
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
