#pragma once
// The times at which a run saves a checkpoint, or evaluates: after certain steps, or by the clock.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/save/train_state.h"
#include "train/setup/batching.h"

namespace flatshard {

// An event every so many steps and, with each_epoch, at the end of every epoch; in either case also at the
// end of the run.
struct StepPeriod {
  int64_t every = 0;
  bool each_epoch = false;

  bool is_due(int64_t step, int64_t total_steps, bool ends_epoch) const {
    return (every > 0 && step % every == 0) || (each_epoch && ends_epoch) ||
           ((every > 0 || each_epoch) && step == total_steps);
  }
};

// A clock that has run out once this many seconds have passed since the last checkpoint; 0: never. Rank 0's
// clock decides for all ranks.
class SaveClock {
 public:
  explicit SaveClock(double seconds) : seconds_(seconds) {}
  bool is_used() const { return seconds_.count() > 0; }
  bool has_run_out() const { return is_used() && std::chrono::steady_clock::now() - begin_ >= seconds_; }
  void restart() { begin_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::duration<double> seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The choice of evaluations that a run saves because their loss is lower than that of every checkpoint
// (checkpoint.best_every). A fast-improving run does not save each: rank 0's clock, or the number of steps,
// decides whether enough has passed since the last one.
class BestSaves {
 public:
  // `stops_early`: the run ends at a time that depends on its best evaluation, so "auto" saves each.
  BestSaves(const CheckpointConfig& config, bool stops_early, int64_t total_steps);

  // Whether enough steps and time have passed to save the evaluation of this step, if it is the best.
  bool may_save(int64_t step) const;
  // Notes that the evaluation of this step was saved as the best, and that training paused for `pause`
  // seconds.
  void saved(int64_t step, double pause);

 private:
  using Clock = std::chrono::steady_clock;

  bool never_ = false, auto_ = false;
  int64_t steps_ = 0;
  double seconds_ = 0;  // least time between saves; auto: set by the last pause
  std::optional<int64_t> last_step_;
  Clock::time_point last_time_;
};

// Whether this evaluation is lower than that of every checkpoint; `best` is the best of them.
bool is_new_best(const std::optional<double>& loss, const std::optional<TrainState::Evaluated>& best);

// The best evaluation of a run at its end: where it is saved, and how it compares with the last. One line of
// text, or "" for a run of fewer than two evaluations.
std::string describe_best(const std::vector<StepMetrics>& history,
                          const std::optional<TrainState::Evaluated>& saved, const std::string& run);

// How often saving would cost least in a run that loses ranks once a day: rare saves lose more steps,
// frequent ones pause training more often, so the best time between two grows with the root of a pause. One
// line of text; "" for a run that has not saved, or that took less than an hour.
std::string describe_pauses(int64_t saves, double paused_seconds, double run_seconds);

// All times of a run, from its config.
struct Timetable {
  Timetable(const Config& c, int64_t total_steps)
      : evaluations{steps_between(c.train.eval_every, total_steps, "train.eval_every"),
                    c.train.eval_each_epoch},
        saves{steps_between(save_interval(c.checkpoint).steps, total_steps, "checkpoint.save_every"),
              c.checkpoint.save_each_epoch},
        best_saves(c.checkpoint, c.train.stop_after_no_improvement > 0, total_steps),
        save_clock(save_interval(c.checkpoint).seconds) {}

  // Whether the end of the run is saved.
  bool save_at_end() const { return saves.every > 0 || saves.each_epoch || save_clock.is_used(); }

  StepPeriod evaluations, saves;
  BestSaves best_saves;
  SaveClock save_clock;
};

}  // namespace flatshard
