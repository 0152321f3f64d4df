#pragma once
// Whether a planned run fits on a GPU, and if not, which settings or how many ranks would make it fit.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/machines/cluster.h"
#include "train/step/training_runtime.h"

namespace flatshard {

struct PlannedRun {
  int64_t device_bytes = 0, host_bytes = 0;
  double seconds = 0;  // estimated time of a step
};
// The plan of a rank of `ranks`, or nothing if such a run is refused.
using Planner = std::function<std::optional<PlannedRun>(const Config& config, int ranks)>;

// A setting that takes less device memory.
struct MemorySwitch {
  std::string arguments;  // arguments on the command line
  std::string cost;       // effect on results and on the host
  PlannedRun alone;       // the run with only this changed
};

struct FitAdvice {
  std::vector<MemorySwitch> switches;
  // The arguments of the switches that together make the run fit: switches with the least consequences are
  // tried first, and none can be left out. Empty if all together do not suffice.
  std::vector<std::string> enough;
  PlannedRun with_enough;
  // The lowest number of ranks, doubled from the planned one, that fits without any switch.
  std::optional<int> ranks;
};

// `current` is the plan of `config` itself, which takes more than `usable` bytes of the device.
FitAdvice advise(const Config& config, int ranks, const PlannedRun& current, int64_t usable,
                 const Planner& plan);

// The answer to `train --plan --for GPU` as text, for the plan of rank 0: also the fastest settings that fit,
// if they are faster. With pipeline stages, the stage that takes the most memory decides.
std::string describe_fit(const RunSetup& setup, const RunPlan& plan, const Cluster& cluster);

}  // namespace flatshard
