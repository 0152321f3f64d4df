#pragma once
// The rate of optimizer updates in host memory, which offloaded runs on GPUs make there.

#include "comm/world.h"

namespace flatshard {

// Bytes per second that AdamW on all threads of this rank reads and writes, while all ranks update.
// Collective; takes about a tenth of a second.
double update_rate(World& world);

}  // namespace flatshard
