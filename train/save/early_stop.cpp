#include "train/save/early_stop.h"

#include "runtime/check.h"
#include "runtime/text.h"
#include "train/save/save_times.h"

namespace flatshard {

void EarlyStop::restore(const TrainState& saved, const TrainState& now) {
  if (saved.eval_fingerprint != now.eval_fingerprint) return;
  lowest_ = saved.lowest_eval;
  not_lower_ = saved.evals_not_lower.value_or(0);
}

void EarlyStop::store(TrainState& state) const {
  state.lowest_eval = lowest_;
  state.evals_not_lower = not_lower_;
}

void EarlyStop::note(int64_t step, double loss) {
  if (is_new_best(loss, lowest_)) {
    lowest_ = {.step = step, .loss = loss};
    not_lower_ = 0;
  } else {
    ++not_lower_;
  }
}

std::string EarlyStop::reason() const {
  const std::string what = lowest_ ? str("has a lower loss than that of step ", with_commas(lowest_->step),
                                         " (", fixed(lowest_->loss, 4), ")")
                                   : "has a finite loss";
  return str("none of the last ", counted(not_lower_, "evaluation"), ' ', what,
             "; train.stop_after_no_improvement = ", limit_);
}

}  // namespace flatshard
