#pragma once
// The cost of each gradient reduction mode: memory, and bytes received by a rank.

#include <string>

#include "train/step/training_runtime.h"

namespace flatshard {

struct ReductionText {
  std::string table;  // one line per value of parallel.reduction, the current one marked
  std::string exact;  // a line about the memory of exact sums and of others; "" unless they take the most
};
// Plans the other modes without allocating anything.
ReductionText describe_reductions(const RunSetup& setup, const RunPlan& in_use, int rank);

// The bytes that parallel.reduction = "exact" takes on a rank beyond "sequential"; 0 unless it is in use.
int64_t cost_of_exact_sums(const RunSetup& setup, const RunPlan& in_use, int rank);

}  // namespace flatshard
