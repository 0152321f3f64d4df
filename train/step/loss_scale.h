#pragma once
// The factor on the loss that keeps fp16 gradients from vanishing. Dynamic: it begins at 2^16, doubles after
// 2000 good steps in a row and halves at a step whose gradients are not finite; that step is skipped. For
// other dtypes it is 1 and stays so.

#include <cstdint>
#include <string>

#include "runtime/dtype.h"

namespace flatshard {

class LossScale {
 public:
  static constexpr double kInitial = 65536.0;
  static constexpr int64_t kGrowEvery = 2000;

  // `setting` is "dynamic" or a positive number; it counts for f16 only.
  LossScale(DType compute, const std::string& setting);

  double value() const { return value_; }
  bool in_use() const { return in_use_; }
  bool dynamic() const { return dynamic_; }
  int64_t good_steps() const { return good_steps_; }  // since it last changed
  // Stands where another one stood.
  void restore(double value, int64_t good_steps) {
    value_ = value;
    good_steps_ = good_steps;
  }
  // After a step; an Error when the scale has fallen below 1 and gradients are still not finite.
  void update(bool finite);

 private:
  bool in_use_ = false, dynamic_ = false;
  double value_ = 1.0;
  int64_t good_steps_ = 0;
};

}  // namespace flatshard
