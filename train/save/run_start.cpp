#include "train/save/run_start.h"

#include <utility>

#include "runtime/check.h"

namespace flatshard {
namespace {

void set_steps(RunStart& start, const Config& config, const Data& data) {
  start.total_steps = total_steps(config, data.steps_until(config.train.epochs));
  check(start.step <= start.total_steps, "it is at step ", start.step, ", the run has ", start.total_steps);
  check(config.schedule.start_step <= start.step, "schedule.start_step = ", config.schedule.start_step,
        " is after step ", start.step, ", with which the run begins: lower it");
}

void continue_from(const TrainState& saved, const TrainState& now, RunStart& start, Data& data) {
  start.step = saved.step;
  start.changes = compare_runs(saved, now);
  start.history = saved.changes;
  start.history.insert(start.history.end(), start.changes.changes.begin(), start.changes.changes.end());
  const std::vector<SourcePosition> sources = source_positions(saved, now, start.changes);
  check(sources.empty() || sources.size() == data.source_count(), "it has the positions of ", sources.size(),
        " files, but data.train names ", data.source_count());
  data.start_at(data_position(saved, start.changes), sources);
}

}  // namespace

RunStart start_of(std::optional<TrainState> resumed, const std::string& source, const TrainState& now,
                  const Config& config, Data& data) {
  RunStart start{.resumed = std::move(resumed), .changes = {}, .history = {}};
  if (!start.resumed) {
    set_steps(start, config, data);
    return start;
  }
  try {
    continue_from(*start.resumed, now, start, data);
    set_steps(start, config, data);
  } catch (const Error& error) {
    fail(str(source, ": cannot resume from it: ", error.what()), error.where);
  }
  return start;
}

}  // namespace flatshard
