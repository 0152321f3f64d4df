#pragma once
// Early stopping (train.stop_after_no_improvement): a run ends when that many evaluations in a row have not
// lowered the evaluation loss. An evaluation has the same bits on all ranks, so each rank counts by itself;
// checkpoints store the count.

#include <cstdint>
#include <optional>
#include <string>

#include "train/save/train_state.h"

namespace flatshard {

class EarlyStop {
 public:
  explicit EarlyStop(int64_t limit) : limit_(limit) {}  // 0: the run never stops early

  // Continues the count of a checkpoint. Losses on other evaluation data do not count.
  void restore(const TrainState& saved, const TrainState& now);
  void store(TrainState& state) const;

  // Notes the loss of an evaluation; a loss that is not finite is no improvement.
  void note(int64_t step, double loss);
  bool is_due() const { return limit_ > 0 && not_lower_ >= limit_; }
  // Why the run ends, if it is due.
  std::string reason() const;

 private:
  int64_t limit_;
  int64_t not_lower_ = 0;  // evaluations since the lowest loss
  std::optional<TrainState::Evaluated> lowest_{};
};

}  // namespace flatshard
