#include "train/config/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/check.h"

namespace flatshard {
namespace {

double shape(const ScheduleConfig& c, int64_t total, int64_t warmup, int64_t s) {
  if (c.kind == ScheduleKind::constant) return 1.0;
  if (c.kind == ScheduleKind::wsd) {
    const int64_t decay = static_cast<int64_t>(std::ceil(static_cast<double>(total) * c.decay_ratio));
    return std::min(1.0, static_cast<double>(total - s) / static_cast<double>(std::max<int64_t>(1, decay)));
  }
  const double span = static_cast<double>(std::max<int64_t>(1, total - warmup));
  if (c.kind == ScheduleKind::linear) return std::max(0.0, static_cast<double>(total - s) / span);
  const double p = static_cast<double>(s - warmup) / span;
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * 0.5 * 2.0 * p)));
}

}  // namespace

int64_t warmup_steps(const ScheduleConfig& c, int64_t total_steps) {
  if (c.warmup_steps > 0) return c.warmup_steps;
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * c.warmup_ratio));
}

void check_schedule(const ScheduleConfig& c, int64_t total_steps) {
  check(c.start_step == 0 || c.start_step < total_steps, "schedule.start_step = ", c.start_step,
        " is not within the run of ", total_steps, " steps: lower it, or raise train.steps");
  const int64_t steps = total_steps - c.start_step;
  check(c.warmup_steps <= steps, "schedule.warmup_steps = ", c.warmup_steps, " is longer than the run of ",
        steps, " steps", c.start_step > 0 ? " from schedule.start_step on" : "",
        ": lower it, or set schedule.warmup_ratio to a fraction of the run");
}

double learning_rate(const ScheduleConfig& c, double peak, int64_t total_steps, int64_t completed) {
  const int64_t total = total_steps - c.start_step, s = completed - c.start_step;
  const int64_t warmup = warmup_steps(c, total);
  if (s < warmup && c.warmup_start == WarmupStart::zero)
    return peak * (static_cast<double>(s) / static_cast<double>(std::max<int64_t>(1, warmup)));
  const double factor = s < warmup ? 1.0 : shape(c, total, warmup, s);
  if (c.min_lr_factor == 0) return peak * factor;
  return peak * (factor * (1.0 - c.min_lr_factor) + c.min_lr_factor);
}

}  // namespace flatshard
