#pragma once
// Times the schedules of a pipeline whose stages sleep instead of computing. So any number of ranks on a few
// processors can show how long stages are idle.

#include <iosfwd>

#include "comm/world.h"

namespace flatshard::test {

// Prints, on rank 0, the idle share of each schedule with one stage per rank, beside the formula's.
void print_bubbles(World& world, std::ostream& out);

}  // namespace flatshard::test
