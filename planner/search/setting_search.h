#pragma once
// The settings with which a run is fastest on a cluster. Candidates are planned exactly. The steps of
// candidates that fit are simulated as for --plan, least work first, until no other can be among the ten
// fastest.

#include <string>
#include <vector>

#include "planner/search/setting_candidates.h"
#include "planner/simulate/simulated_step.h"
#include "train/step/training_runtime.h"

namespace flatshard {

struct FoundSetting {
  Config config;
  std::string arguments;                     // command-line arguments; "" for the config as it is
  int64_t device_bytes = 0, host_bytes = 0;  // memory of the rank that takes most
  std::string effect{};                      // effect on results; "" if they stay the same
  SimulatedStep step{};
  double utilization = 0;
  std::string limit{};  // limit of the step, and the remedy
};

struct SimulatedSetting {
  std::string arguments;
  double seconds = 0;
};

struct SearchResult {
  // At most ten settings that fit, the fastest first. Changes that gain less than half a percent are left
  // out.
  std::vector<FoundSetting> best{};
  int64_t planned = 0, refused = 0, too_large = 0, simulated = 0;
  int64_t slower = 0;  // settings not simulated: their products alone take longer than the ten best
  std::vector<SimulatedSetting> all{};  // all simulated settings, the fastest first
};

// Memory that a rank can use on its device.
int64_t usable_bytes(const Cluster& cluster);

// The plan of the rank that takes the most device memory.
struct LargestPlan {
  RunPlan plan;
  int64_t device_bytes = 0;
};
LargestPlan plan_largest(const RunSetup& setup);

// An Error if the config itself is refused on this number of ranks.
SearchResult search_settings(const Config& config, int ranks, const Cluster& cluster, SearchScope scope);

// The best settings as a table, with prices if the cluster has them, and the time of the run. With `verbose`
// all simulated settings follow, one line each.
std::string describe_search(const SearchResult& result, const Config& config, int ranks,
                            const Cluster& cluster, bool verbose = false);

}  // namespace flatshard
