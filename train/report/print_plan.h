#pragma once
// What a run would take, told before it begins.

#include <iosfwd>

#include "comm/world.h"
#include "train/config/config.h"

namespace flatshard {

// What `train CONFIG --plan` prints: model, batch arithmetic, operations per token, units with their traffic
// and all memory, without data or allocation.
void print_plan(const LoadedConfig& loaded, World& world, std::ostream& out);

}  // namespace flatshard
