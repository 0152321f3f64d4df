#pragma once
// The learning rate as a function of the number of completed steps. It is evaluated in double in a fixed
// order of operations, which reproduces published training logs to the last bit.
//   warm-up over w steps:  lr s / w                     (warmup_start = one: lr throughout)
//   after it, p = (s - w) / (T - w):
//   constant 1    linear 1 - p    cosine (1 + cos(pi p)) / 2    wsd 1, then linear to 0 over the last
//   decay_ratio T steps
// and the factor f becomes f (1 - min_lr_factor) + min_lr_factor.
//
// The rate depends on the config and the step alone, not on the history of the run. If a run resumes with
// other values, it follows the new curve from there on. With start_step both s and T count from that step, so
// that a new curve can begin where the run resumes.

#include <cstdint>

#include "runtime/named.h"

namespace flatshard {

enum class ScheduleKind { linear, constant, cosine, wsd };
constexpr auto value_names(ScheduleKind) { return std::array{"linear", "constant", "cosine", "wsd"}; }

enum class WarmupStart { zero, one };  // one: no ramp
constexpr auto value_names(WarmupStart) { return std::array{"zero", "one"}; }

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::linear;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0;  // fraction of all steps, rounded up; not with warmup_steps
  WarmupStart warmup_start = WarmupStart::zero;
  double min_lr_factor = 0;
  int64_t start_step = 0;
  double decay_ratio = 0.2;  // fraction of all steps in which the rate of wsd decays
};

int64_t warmup_steps(const ScheduleConfig& c, int64_t total_steps);
// An Error if the schedule starts after the run, or if its warm-up is longer than what remains, so that the
// run would never reach its peak rate.
void check_schedule(const ScheduleConfig& c, int64_t total_steps);

// The rate of the step that follows `completed` completed steps, at least start_step.
double learning_rate(const ScheduleConfig& c, double peak, int64_t total_steps, int64_t completed);

}  // namespace flatshard
