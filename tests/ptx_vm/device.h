#pragma once
// The limits of the device that the machine stands for, an A100 with as many processors as an H100.

#include <cstdint>

namespace flatshard::ptx_vm {

inline constexpr int kProcessors = 132;
inline constexpr uint32_t kMaxThreads = 1024, kMaxBlockZ = 64, kMaxGridYZ = 65535;  // of a block, of a grid
inline constexpr uint32_t kThreadsPerProcessor = 2048, kBlocksPerProcessor = 32, kRegisters = 65536;
// Bytes of shared memory: of a block, of one that asks for more, of a processor, kept from each block.
inline constexpr uint32_t kSharedPerBlock = 49152, kSharedOptIn = 166912, kSharedPerProcessor = 167936,
                          kSharedReserved = 1024;

}  // namespace flatshard::ptx_vm
