#pragma once
// What ptxas gave each CUDA kernel: registers, bytes of stack, shared memory. Stack is where registers are
// spilled to, and arrays that are indexed by what is known only when the kernel runs. It is read off the
// program itself, from the machine code in it, so it needs neither a GPU nor the toolkit.

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard::bench {

struct KernelResources {
  std::string kernel;  // "forward_kernel<bf16, 64>(ForwardArguments<bf16>)"
  uint32_t arch = 0;   // 90: sm_90
  uint32_t registers = 0;
  uint32_t stack_bytes = 0, shared_bytes = 0;  // of a thread; of a block, beside what a launch adds
};

// Of all kernels that are compiled for a GPU into an ELF file, such as a program; in the order of their
// names. Kernels that are there as PTX alone are not among them.
std::vector<KernelResources> kernel_resources(const std::string& file);

// One line for each kernel.
std::string resource_table(const std::vector<KernelResources>& all);

}  // namespace flatshard::bench
