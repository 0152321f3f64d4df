#pragma once
// Where the registers of a function lie in a warp's register file. PTX names thousands of registers, few of
// which hold a value at any one time; those that never do so together share a place, so that the register
// files of the resident warps stay within the processor's caches.

#include <cstdint>
#include <vector>

#include "tests/ptx_vm/syntax.h"

namespace flatshard::ptx_vm {

inline constexpr uint32_t kSlotAlignment = 64;  // of vector instructions

struct RegisterSlots {
  std::vector<uint32_t> slots;  // of each register, in the order in which the body declares them
  uint32_t bytes = 0;           // all of the slots
};

// Slots begin at `first`.
RegisterSlots allocate_registers(const Function& function, uint32_t first);

// The register that a name means, where registers are declared one by one ("%p") or by their number
// ("%r<5>"): its place in the declaration, or -1.
int place_in(const Registers& declared, std::string_view name);

}  // namespace flatshard::ptx_vm
