#pragma once
// When a run saves a checkpoint, or evaluates: after certain steps, or by the clock.

#include <chrono>
#include <cstdint>

#include "train/save/best_saves.h"
#include "train/setup/batching.h"

namespace flatshard {

// Every so many steps and, with each_epoch, at the end of every epoch; if either, also at the end of the run.
struct StepPeriod {
  int64_t every = 0;
  bool each_epoch = false;

  bool is_due(int64_t step, int64_t total_steps, bool ends_epoch) const {
    return (every > 0 && step % every == 0) || (each_epoch && ends_epoch) ||
           ((every > 0 || each_epoch) && step == total_steps);
  }
};

// Once so many seconds have passed since the last checkpoint; 0: never. Rank 0's clock decides for all ranks.
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

// All of these of a run, from its config.
struct Timetable {
  Timetable(const Config& c, int64_t total_steps)
      : evaluations{steps_between(c.train.eval_every, total_steps, "train.eval_every"),
                    c.train.eval_each_epoch},
        saves{steps_between(save_interval(c.checkpoint).steps, total_steps, "checkpoint.save_every"),
              c.checkpoint.save_each_epoch},
        best_saves(c.checkpoint, total_steps),
        save_clock(save_interval(c.checkpoint).seconds) {}

  StepPeriod evaluations, saves;
  BestSaves best_saves;
  SaveClock save_clock;
};

}  // namespace flatshard
