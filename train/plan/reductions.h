#pragma once
// The cost of each gradient reduction mode: memory, and bytes received by a rank.

#include <string>

#include "train/step/training_runtime.h"

namespace flatshard {

// One line per value of parallel.reduction, the current one marked. Plans the other modes without allocating
// anything.
std::string describe_reductions(const RunSetup& setup, const RunPlan& in_use, int rank);

// The bytes that parallel.reduction = "exact" takes on a rank beyond "sequential"; 0 unless it is in use.
int64_t cost_of_exact_sums(const RunSetup& setup, const RunPlan& in_use, int rank);

}  // namespace flatshard
