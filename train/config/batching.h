#pragma once
// How a global batch is cut. It is a fixed number of lanes, a lane being lane_size sequences that are
// computed together; at micro-step m, rank r of N works on lanes (m N + r) K to (m N + r + 1) K, where K
// lanes make up the batch of a device. Gradients are summed over lanes in one tree, so a lane is what the
// bits of a run depend on; how lanes are spread over devices and micro-steps is not.

#include <cstdint>

#include "train/config/config.h"

namespace flatshard {

struct Batching {
  int64_t total_sequences;  // of an optimizer step
  int64_t lane_sequences;
  int ranks;
  int64_t lanes;        // K: of a rank in a micro-step
  int64_t micro_steps;  // of an optimizer step

  // Whether any other power of two of ranks, or cut into micro-steps, gives the same bits.
  bool same_bits_anywhere() const;
};

// Errors name the numbers and, where the batch does not divide, the nearest combinations that do.
Batching batching_of(const TrainConfig& c, int ranks);

// The optimizer steps of the run, given those of an epoch.
int64_t total_steps(const Config& config, int64_t steps_per_epoch);

// Steps between two events of which the config says "every": a share of the run below 1, rounded up.
int64_t steps_between(double every, int64_t total_steps, const char* key);

}  // namespace flatshard
