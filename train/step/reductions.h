#pragma once
// What each way of summing gradients costs a run: its memory, and what a rank receives.

#include <string>

#include "comm/world.h"
#include "train/config/run_setup.h"

namespace flatshard {

// A line for each value of parallel.reduction, the one in use marked. All ranks plan; nothing is allocated.
std::string describe_reductions(const RunSetup& setup, World& world);

}  // namespace flatshard
