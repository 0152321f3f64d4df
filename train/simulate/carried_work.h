#pragma once
// What a step leaves to the next one: exchanges that are still running when it begins, such as gathers of
// updated weights.

#include <vector>

#include "runtime/recording.h"
#include "train/simulate/replay.h"

namespace flatshard {

// What carries over into a row that plays a step after one like it, whose items had the times `before`; this
// one begins at `begin`.
std::vector<ReplayItem> carried_work(const ReplayRow& row, const Recording& recording,
                                     const std::vector<ReplayTimes>& before, double begin);

}  // namespace flatshard
