#pragma once
// Times training steps on adapters (rank 8 on all linear layers) against two other steps of the same model:
//   frozen   trains only the first norm of the first block: the forward pass and all gradients of
//            activations, the least that adapters in all blocks need
//   full     trains all parameters
// The three runs are in one process and are interleaved step by step, so ratios compare neighboring steps.

#include <memory>
#include <string>
#include <vector>

#include "bench/step_bench.h"

namespace flatshard::bench {

// One step of each run.
struct LoraRound {
  StepSample adapters, frozen, full;
  bool quiet() const { return adapters.quiet && frozen.quiet && full.quiet; }
};

class LoraBench {
 public:
  // `world` and `ceilings` must outlive the object. options.trained is ignored.
  LoraBench(StepOptions options, World& world, Ceilings& ceilings);

  LoraRound round();
  // Runs rounds for `seconds`. Disturbed rounds are excluded if five others remain.
  std::vector<LoraRound> measure(double seconds);

 private:
  StepBench adapters_, frozen_, full_;
};

std::string lora_header(const StepOptions& options);
std::string lora_lines(const std::string& compute, const std::vector<LoraRound>& rounds);

}  // namespace flatshard::bench
