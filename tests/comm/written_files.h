#pragma once
// What runs in pipeline stages write, compared byte by byte with what the same ranks write in one stage:
// model/ or adapter/, the checkpoints, the metrics, and what runs write that resume from these.

#include <iosfwd>

#include "comm/world.h"

namespace flatshard::test {

// Trains full models, adapters, adapters on 4-bit weights and frozen parameters with every schedule, and on 4
// ranks with every strategy, in a folder that is removed again. Rank 0 prints a line for each setting and the
// differences. Returns whether there are none.
bool written_files_hold(World& world, bool all_shapes, std::ostream& out);

}  // namespace flatshard::test
