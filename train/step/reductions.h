#pragma once
// What each way of summing gradients costs a run: its memory, and what a rank receives.

#include <string>

#include "train/step/training_runtime.h"

namespace flatshard {

// A line for each value of parallel.reduction, the one in use marked. All ranks plan the others; nothing is
// allocated.
std::string describe_reductions(const RunSetup& setup, const RunPlan& in_use, World& world);

}  // namespace flatshard
