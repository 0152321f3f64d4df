#pragma once
// The size of one arena in the plan of a run.

#include <string>

#include "train/step/training_runtime.h"

namespace flatshard::test {

// 0 if the run has no such arena.
inline int64_t planned_bytes(const RunPlan& plan, const std::string& arena) {
  for (const MemoryRow& row : plan.memory)
    if (row.name == arena) return row.bytes;
  return 0;
}

}  // namespace flatshard::test
