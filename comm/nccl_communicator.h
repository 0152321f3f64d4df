#pragma once
// Communicators over NCCL, for device memory, in CUDA stream order. Each rank needs its own GPU. All of them
// are split from one NCCL communicator of all ranks, which is initialized without blocking, within the time
// limit of a collective. A group of one rank uses no NCCL.

#include <memory>

#include "comm/communicator.h"

namespace flatshard {

// A communicator over the ranks that pass the same color, as in make_communicator. All ranks must call it.
std::unique_ptr<Communicator> make_nccl_communicator(World& world, Device device, const char* name, int color,
                                                     Connections connections);

}  // namespace flatshard
