#pragma once
// Which evaluations a run saves because their loss is lower than that of every checkpoint
// (checkpoint.best_every). A fast-improving run does not save each: rank 0's clock, or the number of steps,
// decides whether enough has passed since the last one.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/save/train_state.h"

namespace flatshard {

class BestSaves {
 public:
  BestSaves(const CheckpointConfig& config, int64_t total_steps);

  // Whether enough steps and time have passed to save the evaluation of this step, if it is the best.
  bool may_save(int64_t step) const;
  // An evaluation of this step was saved as the best, for which training paused this long.
  void saved(int64_t step, double pause);

 private:
  using Clock = std::chrono::steady_clock;

  bool never_ = false, auto_ = false;
  int64_t steps_ = 0;
  double seconds_ = 0;  // auto: set by the last pause
  std::optional<int64_t> last_step_;
  Clock::time_point last_time_;
};

// Whether this evaluation is lower than that of every checkpoint; `best` is the best of them.
bool is_new_best(const std::optional<double>& loss, const std::optional<TrainState::Evaluated>& best);

// The best evaluation of a run at its end: where it is saved, and how it compares with the last. One line of
// text, or "" for a run of fewer than two evaluations.
std::string describe_best(const std::vector<StepMetrics>& history,
                          const std::optional<TrainState::Evaluated>& saved, const std::string& run);

}  // namespace flatshard
