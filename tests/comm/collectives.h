#pragma once
// Tests every verb of a communicator on all ranks of the world.

#include <iosfwd>

#include "comm/world.h"

namespace flatshard::test {

// Returns whether every element has arrived where communicator.h says. Each rank writes its failures to
// `out`.
bool collectives_hold(World& world, std::ostream& out);

// Rank 0 alone launches a graph with a call of NCCL: its watchdog must end all ranks.
void launch_unmatched_graph(World& world);

}  // namespace flatshard::test
