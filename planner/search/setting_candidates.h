#pragma once
// Configs that differ from a given one in settings that make a step faster or its memory smaller. Not all of
// them are possible: some settings exclude each other.

#include <string>
#include <vector>

#include "planner/machines/cluster.h"
#include "train/config/config.h"

namespace flatshard {

struct Candidate {
  Config config;
  std::vector<std::string> changes;  // command-line arguments; none for the given config
};
using Candidates = std::vector<Candidate>;

// Tokens of a short chunk of the head. A shorter chunk saves no memory, since other scratch is as large.
inline constexpr int64_t kShortHeadChunk = 256;

// The settings that a search may change.
enum class SearchScope {
  same_results,  // strategy, recomputation, and micro-batches in the lanes of the config
  usual,         // the same settings, and the lanes
  all,           // all of these, and pipeline stages, reductions, schedules and prefetching
};

Candidates candidates_of(const Config& config, int ranks, const Cluster& cluster, SearchScope scope);
// Variants of the candidate with moments that take less device memory, with shorter chunks of the head and,
// if `offload`, with offload.
Candidates with_less_memory(const Candidate& candidate, bool offload);
// Variants of the candidate with settings that can only hide waits: deeper prefetching, interleaved stages.
Candidates with_fewer_waits(const Candidate& candidate);

}  // namespace flatshard
