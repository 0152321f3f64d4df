#pragma once
// The limits of the simulated device: an H100, or an A100 with the same number of multiprocessors.

#include <cstdint>

namespace flatshard::ptx_vm {

inline constexpr int kProcessors = 132;
inline constexpr uint32_t kMaxThreads = 1024, kMaxBlockZ = 64, kMaxGridYZ = 65535;  // per block, per grid
inline constexpr uint32_t kThreadsPerProcessor = 2048, kBlocksPerProcessor = 32, kRegisters = 65536;
// Bytes of shared memory per block, and bytes reserved in each block.
inline constexpr uint32_t kSharedPerBlock = 49152, kSharedReserved = 1024;

// The differences between the two devices.
struct Architecture {
  const char* name;
  int major;
  uint32_t shared_per_processor, shared_opt_in;  // bytes; opt_in: limit of a block that asks for more
};
const Architecture& architecture();  // selected by Options::arch

}  // namespace flatshard::ptx_vm
