#include "train/save/save_times.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"
#include "runtime/text.h"
#include "train/save/checkpoint_names.h"
#include "train/setup/batching.h"

namespace flatshard {
namespace {

// The share of the time that "auto" spends on saving.
constexpr double kMostShare = 0.05;

}  // namespace

BestSaves::BestSaves(const CheckpointConfig& config, bool stops_early, int64_t total_steps) {
  if (const std::optional<SaveInterval> given = best_interval(config)) {
    steps_ = steps_between(given->steps, total_steps, "checkpoint.best_every");
    seconds_ = given->seconds;
    never_ = steps_ == 0 && seconds_ == 0;
    return;
  }
  auto_ = !stops_early;
  never_ = save_interval(config).seconds == 0 && !saves_by_steps(config);
}

bool BestSaves::may_save(int64_t step) const {
  if (never_ || !last_step_) return !never_;
  return step - *last_step_ >= steps_ && Clock::now() - last_time_ >= std::chrono::duration<double>(seconds_);
}

void BestSaves::saved(int64_t step, double pause) {
  last_step_ = step;
  last_time_ = Clock::now();
  if (auto_) seconds_ = pause / kMostShare;
}

bool is_new_best(const std::optional<double>& loss, const std::optional<TrainState::Evaluated>& best) {
  return loss && std::isfinite(*loss) && (!best || *loss < best->loss);
}

std::string describe_pauses(int64_t saves, double paused_seconds, double run_seconds) {
  constexpr double kHour = 3600, kBetweenLosses = 24 * kHour;
  if (saves == 0 || run_seconds < kHour) return "";
  const double pause = paused_seconds / static_cast<double>(saves);
  const double between = std::sqrt(2 * pause * kBetweenLosses);
  return str("saving    paused training for ", human_seconds(pause), " each of ", counted(saves, "time"),
             "; if ranks are lost once a day, checkpoint.save_every = \"",
             std::max<int64_t>(1, std::lround(between / 60)), "min\" costs least\n");
}

std::string describe_best(const std::vector<StepMetrics>& history,
                          const std::optional<TrainState::Evaluated>& saved, const std::string& run) {
  const StepMetrics *best = nullptr, *last = nullptr;
  int64_t count = 0;
  for (const StepMetrics& m : history) {
    if (!m.eval_loss) continue;
    ++count;
    last = &m;
    if (std::isfinite(*m.eval_loss) && (!best || *m.eval_loss < *best->eval_loss)) best = &m;
  }
  if (count < 2 || !best) return "";
  std::string text =
      str("best      step ", with_commas(best->step), ", evaluation loss ", fixed(*best->eval_loss, 4));
  if (best == last)
    text += ", the last";
  else
    text += str(", ", fixed(*last->eval_loss - *best->eval_loss, 4), " below the last (step ",
                with_commas(last->step), ")");
  if (!saved)
    text += "; no checkpoint has an evaluation";
  else if (saved->step == best->step)
    text += str("; saved in ", run, '/', name_of_step(best->step));
  else
    text += str("; not saved: the best checkpoint is ", run, '/', name_of_step(saved->step), ", ",
                fixed(saved->loss, 4));
  return text + '\n';
}

}  // namespace flatshard
