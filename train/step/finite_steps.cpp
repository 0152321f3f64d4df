#include "train/step/finite_steps.h"

#include <cmath>
#include <cstdlib>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr double kMostScale = 1e30;
constexpr int kMostInARow = 100;

}  // namespace

LossScale::LossScale(DType compute, const std::string& setting) : in_use_(compute == DType::f16) {
  dynamic_ = in_use_ && setting == "dynamic";
  if (dynamic_) value_ = kInitial;
  if (setting == "dynamic") return;
  char* end = nullptr;
  const double number = std::strtod(setting.c_str(), &end);
  // The inverse of the scale is computed in fp32, too.
  check(!setting.empty() && *end == '\0' && number >= 1 / kMostScale && number <= kMostScale,
        "precision.loss_scale is \"", setting, "\", must be \"dynamic\" or a number from ", 1 / kMostScale,
        " to ", kMostScale);
  check(in_use_, "precision.loss_scale = \"", setting, "\" requires precision.compute = \"fp16\"");
  value_ = number;
}

void LossScale::update(bool finite) {
  if (!dynamic_) return;
  if (!finite) {
    value_ /= 2;
    good_steps_ = 0;
    check(value_ >= 1.0, "the gradients are not finite even with a loss scale of ", value_ * 2,
          ": the model diverged; lower optimizer.lr, or use precision.compute = \"bf16\"");
  } else if (++good_steps_ == kGrowEvery) {
    value_ *= 2;
    good_steps_ = 0;
  }
}

void SkippedSteps::add(const Outcome& o, bool may_skip) {
  in_a_row_ = o.skipped ? in_a_row_ + 1 : 0;
  check(may_skip || (o.finite && std::isfinite(o.loss)), "step ", o.step, ": the loss is ", o.loss,
        " and the gradient norm ", o.grad_norm,
        ", must be finite; lower optimizer.lr, or set train.skip_nonfinite = true");
  check(in_a_row_ < kMostInARow, kMostInARow,
        " steps in a row were skipped for lack of targets or of finite gradients; check data.train, or lower "
        "optimizer.lr");
}

}  // namespace flatshard
