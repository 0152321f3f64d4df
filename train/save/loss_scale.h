#pragma once
// The loss scale, which keeps fp16 gradients from underflowing. A dynamic scale starts at 2^16, doubles after
// 2000 consecutive finite steps, and halves at a step with nonfinite gradients, which is skipped. For other
// dtypes it is always 1.

#include <cstdint>
#include <string>

#include "runtime/dtype.h"

namespace flatshard {

class LossScale {
 public:
  static constexpr double kInitial = 65536.0;
  static constexpr int64_t kGrowEvery = 2000;

  // `setting` is "dynamic" or a positive number; a number is an Error unless compute is f16.
  LossScale(DType compute, const std::string& setting);

  double value() const { return value_; }
  bool in_use() const { return in_use_; }
  bool dynamic() const { return dynamic_; }
  int64_t good_steps() const { return good_steps_; }  // since it last changed
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

}  // namespace flatshard
