#pragma once
// Compares the files written by runs in pipeline stages, byte by byte, with those that the same ranks write
// in one stage: model/ or adapter/, the checkpoints, the metrics, and the files of runs that resume from
// them.

#include <iosfwd>

#include "comm/world.h"

namespace flatshard::test {

// Trains full models, adapters, adapters on 4-bit weights and frozen parameters with every schedule, and on 4
// ranks with every strategy, in a folder that is removed at the end. Rank 0 prints a line for each setting,
// and the differences. Returns true if there are none.
bool written_files_hold(World& world, bool all_shapes, std::ostream& out);

}  // namespace flatshard::test
