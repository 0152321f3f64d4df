#pragma once
// How much of the machine's memory is still to be had. Linux grants more than there is and ends a process
// that takes it at its word; so what knows its need beforehand asks here first.

#include <cstdint>

namespace flatshard {

// Bytes that this process may still take: what the kernel calls available, with free swap, and no more than
// the memory cgroups around the process leave. INT64_MAX where the system does not say.
int64_t available_host_bytes();

// What this process holds of the machine's memory, now and at most so far, and what the machine has; 0 where
// the system does not say.
struct ProcessMemory {
  int64_t resident, peak, machine;
};
ProcessMemory process_memory();
// From now on `peak` is the most that it has held since. Whether the system lets it.
bool reset_peak_memory();

// Tests: while one lives, no more than `limit` bytes are available.
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
