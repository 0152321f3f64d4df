#pragma once
// The attributes of a kernel, by its host stub.

#include <cstdint>

#include "ptx_vm/program.h"

namespace flatshard::ptx_vm {

// The limit on static and dynamic shared memory per block: 48 KiB unless cudaFuncSetAttribute raised it.
uint32_t shared_limit_of(const void* stub);

// The limit on blocks per cluster: 8, or 16 if cudaFuncSetAttribute allows it.
uint32_t largest_cluster_of(const void* stub);

// The number of blocks that fit on one multiprocessor by threads and shared memory. Register usage, which
// ptxas determines, is unknown.
uint32_t blocks_per_processor(const Kernel& kernel, uint64_t threads, uint64_t dynamic_shared_bytes);

}  // namespace flatshard::ptx_vm
