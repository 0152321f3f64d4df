#pragma once
// The settings with which a run is fastest on a cluster. Candidates are planned exactly. The steps of
// candidates that fit are simulated as for --plan, least work first, until no other can be among the ten
// fastest.

#include <string>
#include <vector>

#include "planner/simulate/simulated_step.h"
#include "train/step/training_runtime.h"

namespace flatshard {

// Configs that differ from a given one in settings that make a step faster or its memory smaller. Not all of
// them are possible: some settings exclude each other.
struct Candidate {
  Config config;
  std::vector<std::string> changes;  // command-line arguments; none for the given config
};
using Candidates = std::vector<Candidate>;

// Tokens of a short chunk of the head. A shorter chunk saves no memory, since other scratch is as large.
inline constexpr int64_t kShortHeadChunk = 256;
inline constexpr int64_t kTile = 8192;
// Whether tiles of kTile tokens would take less memory.
inline bool has_shorter_tiles(const Config& c) {
  return c.train.tile == 0 && c.data.seq_len * c.train.batch_size_per_device > kTile;
}

// The settings that a search may change.
enum class SearchScope {
  same_results,  // strategy, recomputation, and micro-batches in the lanes of the config
  usual,         // the same settings, and the lanes
  all,           // all of these, and pipeline stages, reductions, schedules and prefetching
};

// `experts` are those of the model.
Candidates candidates_of(const Config& config, int ranks, const Cluster& cluster, SearchScope scope,
                         int64_t experts = 0);
// Variants of the candidate with moments that take less device memory, with shorter chunks of the head and,
// if `offload`, with offload.
Candidates with_less_memory(const Candidate& candidate, bool offload);
// Variants of the candidate with settings that can only hide waits: deeper prefetching, interleaved stages.
Candidates with_fewer_waits(const Candidate& candidate);

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

// The sources of the cluster's rates, in one line.
std::string describe_rates(const Cluster& cluster);

// Model FLOPs utilization: the operations of the model in a step, as a share of the matrix peak of all
// devices.
double utilization(const SimulatedStep& step, const RunSetup& setup, const RunPlan& plan,
                   const Cluster& cluster);

// Four lines: the time of a step, the parts of that time, its limit (describe_limit()), and the assumptions.
std::string describe_estimate(const SimulatedStep& step, const RunSetup& setup, const RunPlan& plan,
                              const Cluster& cluster);

// The wait or the work that takes most of a step, and a setting that shortens it: "waits for copies 410 ms:
// ...".
std::string describe_limit(const SimulatedStep& step, const RunSetup& setup);

}  // namespace flatshard
