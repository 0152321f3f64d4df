#pragma once
// Times training steps on several ranks: sharded against replicated parameters, and prefetching against
// gathering on demand. The variants are interleaved step by step in one process on the same data. Times are
// those of the slowest rank. Compute dominates in the model, a Llama with 4 layers, hidden 512, and 4
// sequences of 256 tokens per rank.

#include <string>
#include <vector>

#include "bench/measure.h"
#include "comm/world.h"

namespace flatshard::bench {

struct StrategyResult {
  std::string name;
  int64_t tokens = 0;    // tokens per step, over all ranks
  int64_t received = 0;  // bytes that each rank receives per step
  int steps = 0;
  Spread seconds;        // seconds per step
  Spread exposed;        // seconds per step in which compute waits for communication, mean over ranks
  double ratio = 1;      // ratio to the first variant: median over neighboring steps
  double grad_norm = 0;  // norm of the last step: equal bits in all variants
};

struct StrategyOptions {
  std::string compute = "bf16";
  double seconds = 20;  // total time of steps, over all variants
};

// The variants: no_shard, full_shard with and without prefetching.
std::vector<StrategyResult> measure_strategies(World& world, const StrategyOptions& options);

std::string strategy_table(const std::vector<StrategyResult>& results, const std::string& compute, int ranks);

}  // namespace flatshard::bench
