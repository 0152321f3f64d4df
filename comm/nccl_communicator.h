#pragma once
// A communicator over NCCL, for device memory, in CUDA stream order. The ranks exchange NCCL ids through the
// world; each rank needs its own GPU.

#include <memory>

#include "comm/communicator.h"

namespace flatshard {

// A communicator over the ranks that pass the same color, as in make_communicator.
std::unique_ptr<Communicator> make_nccl_communicator(World& world, Device device, const char* name,
                                                     int color);

}  // namespace flatshard
