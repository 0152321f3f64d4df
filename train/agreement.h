#pragma once
// Ranks that read different configs, or run different programs, would wait for one another for ever, or train
// something nobody asked for. So before anything else they compare what they are about to do; where two
// differ, all of them stop with the first difference named.

#include <functional>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/world.h"
#include "train/config/config.h"

namespace flatshard {

// Throws, on every rank, unless all ranks have the same config and the same task ("train", "plan").
void agree_on_config(World& world, Config& config, const std::string& task);
// The same for what a step says to other ranks. Equal configs make equal schedules; other programs may not.
void agree_on_schedule(World& world, const CollectiveLog& schedule);

// Does the work on every rank; where it throws on one of them, all throw the first of these Errors.
void succeed_together(World& world, const std::function<void()>& work);

// Of texts of lines "key = value", one for each rank: "rank 2 has KEY = V, rank 0 has W"; "" where all are
// the same.
std::string first_difference(const std::vector<std::string>& texts);

}  // namespace flatshard
