#pragma once
// Runs a few lines of hand-written PTX, for tests of single instructions.

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard::ptx_vm {

// The body can use %r, %rs, %rd, %f, %fd and %p registers 0 ... 31, the thread number in %r30, 1024 bytes of
// shared memory `tile`, 256 of global memory `source`, which contain 0 ... 255, and `functions`. Each
// thread's result is %rd0, or %r0 if %rd0 stays zero.
std::vector<uint64_t> run_ptx(const std::string& body, uint32_t threads = 32,
                              const std::string& functions = "", int arch = 90);

}  // namespace flatshard::ptx_vm
