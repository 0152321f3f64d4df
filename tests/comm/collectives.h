#pragma once
// Every verb of a communicator, tried on all ranks of the world.

#include <iosfwd>

#include "comm/world.h"

namespace flatshard::test {

// Whether each element arrived where communicator.h says. What did not is written to `out`, by the rank that
// missed it.
bool collectives_hold(World& world, std::ostream& out);

}  // namespace flatshard::test
