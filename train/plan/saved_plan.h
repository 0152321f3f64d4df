#pragma once
// plan.json in the folder of a run: the plan that `train --plan --save` has made of it. The run compares its
// steps with the plan; it measures nothing for that. The file is a JSON object on one line:
//   "seconds"    predicted time of a step
//   "machines"   the machines that the time is for: "h100-80gb"
//   "memory"     the memory table of rank 0: a list of {"name", "bytes", "what"}, the sum last
//   "settings"   what time and memory depend on: resolved config keys as TOML, and numbers of ranks
//   "timeline"   the predicted step: "what" names its ranks; "ranks" is a list of
//                {"rank", "rows": [{"name", "spans": [[name, begin, length], ...]}, ...]}, in nanoseconds

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/trace.h"
#include "train/setup/run_setup.h"
#include "train/step/memory_plan.h"

namespace flatshard {

struct SavedPlan {
  double seconds = 0;
  std::string machines{};
  std::vector<MemoryRow> memory{};
  std::map<std::string, std::string> settings{};
  StepTimeline timeline{};  // its first rank has a span of the step
};

// The settings of a run, or of its plan, that the time and the memory of a step depend on.
std::map<std::string, std::string> planned_settings(const RunSetup& setup);

std::string plan_path(const std::string& run_folder);

// Creates the folder if needed, and writes the file atomically. An Error if a file of this name is no plan.
void save_plan(const std::string& run_folder, const SavedPlan& plan);

// An Error names the file and its defect.
SavedPlan read_plan(const std::string& path);

// The plan that was saved for this run. Nothing if there is none, or if it cannot be read or has other
// settings, which is logged.
std::optional<SavedPlan> plan_of_run(const RunSetup& setup, const std::string& run_folder);

}  // namespace flatshard
