#pragma once
// Rates of the ops of a run on the CPU, measured on a smaller model of the same kind: two blocks between an
// embedding and a head, with 64 to 512 tokens, and the update of their weights. The simulator scales
// them to the shapes of the run.

#include <vector>

#include "planner/machines/cluster.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// Takes about a second. `products` is the rate of matrix products of a rank. Empty for models that read
// images.
std::vector<TimedOp> time_ops(const RunSetup& setup, double products);

// The model that time_ops() runs: it has this width, or the run's if that is smaller.
ModelConfig smaller_model(const ModelConfig& model, int64_t width);

}  // namespace flatshard
