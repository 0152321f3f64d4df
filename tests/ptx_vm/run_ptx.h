#pragma once
// Runs a few lines of hand-written PTX, for tests of single instructions.

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard::ptx_vm {

// The body sees %r, %rs, %rd, %f, %fd and %p registers 0 ... 31, thread number %r30, 1024 bytes of shared
// memory `tile`, 256 of global memory `source`, which hold 0 ... 255, and `functions`. Each thread's result
// is %rd0, or %r0 where %rd0 is left at zero.
std::vector<uint64_t> run_ptx(const std::string& body, uint32_t threads = 32,
                              const std::string& functions = "", int arch = 90);

}  // namespace flatshard::ptx_vm
