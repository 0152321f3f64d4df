#pragma once
// The memory rate of a CPU, measured by a copy that does not fit into the caches.

#include "comm/world.h"

namespace flatshard {

// The bytes per second that this rank reads and writes while all ranks copy. Collective; takes some
// hundredths of a second.
double copy_rate(World& world);

}  // namespace flatshard
