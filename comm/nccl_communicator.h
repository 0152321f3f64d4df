#pragma once
// A communicator over NCCL: device memory, in the order of a CUDA stream. The ranks find each other through
// the world; each needs a GPU of its own.

#include <memory>

#include "comm/communicator.h"

namespace flatshard {

// Over the ranks that give the same color, as make_communicator says.
std::unique_ptr<Communicator> make_nccl_communicator(World& world, Device device, const char* name,
                                                     int color);

}  // namespace flatshard
