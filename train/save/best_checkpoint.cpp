#include "train/save/best_checkpoint.h"

#include <cmath>
#include <optional>

#include "runtime/check.h"
#include "runtime/text.h"
#include "train/report/metrics.h"
#include "train/save/checkpoint_names.h"
#include "train/save/train_state.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

TrainState state_to_compare(const fs::path& checkpoint) {
  try {
    return read_train_state((checkpoint / TrainState::kFileName).string());
  } catch (const Error& error) {
    throw Error(str(error.what(), "; it may be the best checkpoint: remove ", checkpoint.string(),
                    ", or name a checkpoint by its path"),
                error.where);
  }
}

}  // namespace

std::string describe_unsaved(const fs::path& run, double saved) {
  const fs::path metrics = run / "metrics.jsonl";
  if (!fs::exists(metrics)) return "";
  std::optional<StepMetrics> lowest;
  for (const StepMetrics& m : read_latest_metrics(metrics.string()))
    if (m.eval_loss && *m.eval_loss < (lowest ? *lowest->eval_loss : saved)) lowest = m;
  if (!lowest) return "";
  return str("; step ", lowest->step, " had ", *lowest->eval_loss,
             ", which was not saved (checkpoint.best_every)");
}

std::optional<BestCheckpoint> find_best(const fs::path& run) {
  check(fs::is_directory(run), run.string(), fs::exists(run) ? ": is not a run folder" : ": no such folder");
  const std::vector<int64_t> steps = steps_in(run);
  check(!steps.empty(), run.string(), ": has no checkpoint");
  std::optional<BestCheckpoint> best;
  for (const int64_t step : steps) {
    const fs::path path = run / name_of_step(step);
    const TrainState state = state_to_compare(path);
    if (state.eval_loss && std::isfinite(*state.eval_loss) && (!best || *state.eval_loss < best->loss))
      best = {.path = path, .step = step, .loss = *state.eval_loss};
  }
  return best;
}

BestCheckpoint best_in(const fs::path& run) {
  const std::optional<BestCheckpoint> best = find_best(run);
  check(best.has_value(), run.string(), ": none of its ", counted(std::ssize(steps_in(run)), "checkpoint"),
        " has an evaluation loss", describe_unsaved(run, HUGE_VAL),
        "; set data.eval and train.eval_every, or name a checkpoint by its path");
  return *best;
}

fs::path named_checkpoint(const fs::path& path) {
  const std::string name = path.filename().string();
  if ((name != kBestName && name != kLatestName) || fs::is_directory(path)) return path;
  const fs::path run = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (steps_in(run).empty() && !fs::exists(run / "metrics.jsonl")) return path;
  return name == kBestName ? best_in(run).path : latest_in(run);
}

}  // namespace flatshard
