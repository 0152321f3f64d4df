#pragma once
// The position at which a run begins: its first step, or the checkpoint that it resumes from.

#include "train/save/run_changes.h"
#include "train/setup/batching.h"

namespace flatshard {

struct RunStart {
  std::optional<TrainState> resumed;
  int64_t step = 0, total_steps = 0;
  ResumeChanges changes;           // changes relative to `resumed`
  std::vector<RunChange> history;  // all changes since the run began
};

// `now` describes the run that starts. Makes the data continue where the checkpoint, if any, stopped. An
// Error if the run cannot start or resume with this config; `source` is the checkpoint's path.
RunStart start_of(std::optional<TrainState> resumed, const std::string& source, const TrainState& now,
                  const Config& config, Data& data);

}  // namespace flatshard
