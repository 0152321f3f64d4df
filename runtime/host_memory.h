#pragma once
// The memory that is available to this process. Linux overcommits: allocations succeed beyond the physical
// memory, and the process is killed when it touches them. Code that knows its need in advance checks it
// here.

#include <cstdint>

namespace flatshard {

// The bytes this process can still use: the kernel's MemAvailable plus free swap, limited by what the memory
// cgroups of the process leave. INT64_MAX if the system does not report it.
int64_t available_host_bytes();

// Throws an Error if the limit on this process's address space (ulimit -v) leaves less than the `bytes` that
// `what` needs. To be called before libraries that crash when an allocation fails.
void require_address_space(int64_t bytes, const char* what);

// The resident and the peak resident memory of this process, and the machine's total memory; 0 if the system
// does not report them.
struct ProcessMemory {
  int64_t resident, peak, machine;
};
ProcessMemory process_memory();
// Restarts the measurement of `peak`. Returns false if the system does not support it.
bool reset_peak_memory();

// Limits the available memory to `limit` bytes during its lifetime, for tests.
class ScopedHostMemory {
 public:
  explicit ScopedHostMemory(int64_t limit);
  ~ScopedHostMemory();
  ScopedHostMemory(const ScopedHostMemory&) = delete;
  ScopedHostMemory& operator=(const ScopedHostMemory&) = delete;

 private:
  int64_t before_;
};

}  // namespace flatshard
