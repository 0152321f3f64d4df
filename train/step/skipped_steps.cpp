#include "train/step/skipped_steps.h"

#include <cmath>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr int kMostInARow = 100;

}  // namespace

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
