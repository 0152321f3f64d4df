#pragma once
// The work that a step leaves to the next one: exchanges that are still running when the next one begins,
// such as gathers of updated weights.

#include <vector>

#include "planner/simulate/replay.h"
#include "runtime/recording.h"

namespace flatshard {

// The items that carry over into a row that plays a step after an equal step, whose items had the times
// `before`. The step begins at `begin`.
std::vector<ReplayItem> carried_work(const ReplayRow& row, const Recording& recording,
                                     const std::vector<ReplayTimes>& before, double begin);

}  // namespace flatshard
