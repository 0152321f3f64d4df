#pragma once
// The resources that ptxas assigned to each CUDA kernel: registers, stack, shared memory; and the
// instructions of the loop that computes its products. The stack holds spilled registers and arrays with
// dynamic indices. The values are read from the machine code in the program, which needs neither a GPU nor
// the CUDA toolkit.

#include <cstdint>
#include <string>
#include <vector>

#include "bench/hot_loop.h"

namespace flatshard::bench {

struct KernelResources {
  std::string kernel;  // a name such as "forward_kernel<bf16, 64>(ForwardArguments<bf16>)"
  uint32_t arch = 0;   // 90 means sm_90
  uint32_t registers = 0;
  uint32_t stack_bytes = 0, shared_bytes = 0;  // stack per thread; static shared memory per block
  uint32_t mma = 0, wgmma = 0;  // numbers of tensor core instructions: of a warp; of a warpgroup
  HotLoop loop;
};

// The resources of all kernels with machine code in an ELF file, such as a program, sorted by name. Kernels
// that are present only as PTX are not included.
std::vector<KernelResources> kernel_resources(const std::string& file);

// A table with one line per kernel.
std::string resource_table(const std::vector<KernelResources>& all);

}  // namespace flatshard::bench
