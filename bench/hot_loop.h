#pragma once
// The loop in which a kernel computes its products, read from its machine code for sm_80 or newer. Counted is
// the shortest way through one iteration with all products: code that an iteration can jump over, such as a
// mask that a tile does not need, is not on it, and instructions under a predicate are, as they take their
// time even where the predicate is false.

#include <cstddef>
#include <cstdint>
#include <span>

namespace flatshard::bench {

// An instruction has 16 bytes. Its lowest 12 bits are the opcode, the next 4 a predicate.
inline constexpr uint64_t kInstructionBytes = 16;
inline constexpr uint16_t kHmma = 0x23c,
                          kHgmma[] = {0x9f0, 0xdf0};  // left operand in shared memory; in registers
inline constexpr uint16_t kProductSync = 0x9c5;       // wgmma.fence and wgmma.wait_group
inline constexpr uint16_t kBranch = 0x947;
inline constexpr uint16_t kAlways = 7;  // the predicate of an instruction without one

struct HotLoop {
  uint32_t instructions = 0;  // 0: the kernel has no such loop
  uint32_t predicated = 0;    // how many have a predicate; branches do not count
  uint32_t products = 0, product_syncs = 0;
};

// The smallest loop that has nearly half of the products of the kernel whose instructions are `code`.
HotLoop hot_loop(std::span<const std::byte> code);

}  // namespace flatshard::bench
