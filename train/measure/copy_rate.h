#pragma once
// The rate of memory on a CPU: what a copy that does not fit into the caches reads and writes.

#include "comm/world.h"

namespace flatshard {

// Bytes per second of this rank, while all ranks copy. Collective; takes some hundredths of a second.
double copy_rate(World& world);

}  // namespace flatshard
