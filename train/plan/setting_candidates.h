#pragma once
// Configs that differ from a given one in settings that make a step faster or its memory smaller. Not all of
// them are possible: some settings exclude each other.

#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/simulate/cluster.h"

namespace flatshard {

struct Candidate {
  Config config;
  std::vector<std::string> changes;  // arguments of the command line, none for the given config
};
using Candidates = std::vector<Candidate>;

// Tokens of a short chunk of the head: with fewer, other scratch is as large.
inline constexpr int64_t kShortHeadChunk = 256;

// What a search may change.
enum class SearchScope {
  same_results,  // strategy, recomputation, and micro-batches in the lanes of the config
  usual,         // also the lanes
  all,           // also pipeline stages, reductions, schedules and prefetching
};

Candidates candidates_of(const Config& config, int ranks, const Cluster& cluster, SearchScope scope);
// With moments that take less device memory, and shorter chunks of the head; with offload if it is asked for.
Candidates with_less_memory(const Candidate& candidate, bool offload);
// With settings that can only hide waits: deeper prefetching, interleaved stages.
Candidates with_fewer_waits(const Candidate& candidate);

}  // namespace flatshard
