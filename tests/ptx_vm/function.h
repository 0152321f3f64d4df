#pragma once
// What a program may set and ask about one kernel, by its host stub.

#include <cstdint>

#include "tests/ptx_vm/program.h"

namespace flatshard::ptx_vm {

// The most shared memory, static and dynamic, that a block may have: 48 KiB, or what cudaFuncSetAttribute
// has raised it to.
uint32_t shared_limit_of(const void* stub);

// 8 blocks, or 16 where cudaFuncSetAttribute allows it.
uint32_t largest_cluster_of(const void* stub);

// How many blocks fit onto one processor, by their threads and shared memory. Registers, which ptxas
// allocates, are not known here.
uint32_t blocks_per_processor(const Kernel& kernel, uint64_t threads, uint64_t dynamic_shared_bytes);

}  // namespace flatshard::ptx_vm
