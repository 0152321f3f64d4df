#pragma once
// Times whole training steps on several ranks: sharded parameters beside replicated ones, and prefetching
// beside gathering when values are needed. All variants live in one process and take turns, step by step, on
// the same data; a time is that of the slowest rank. The model is one on which compute dominates: a Llama of
// 4 layers, hidden 512, on batches of 4 sequences of 256 tokens for each rank.

#include <string>
#include <vector>

#include "bench/measure.h"
#include "comm/world.h"

namespace flatshard::bench {

struct StrategyResult {
  std::string name;
  int64_t tokens = 0;    // of a step, over all ranks
  int64_t received = 0;  // bytes that each rank receives in a step
  int steps = 0;
  Spread seconds;        // of a step
  Spread exposed;        // seconds of a step in which compute waited for communication, mean over ranks
  double ratio = 1;      // to the first variant: median over neighbours in time
  double grad_norm = 0;  // of the last step: the same bits for all
};

struct StrategyOptions {
  std::string compute = "bf16";
  double seconds = 20;  // of steps, of all variants together
};

// no_shard, full_shard with prefetching and without.
std::vector<StrategyResult> measure_strategies(World& world, const StrategyOptions& options);

std::string strategy_table(const std::vector<StrategyResult>& results, const std::string& compute, int ranks);

}  // namespace flatshard::bench
