#pragma once
// Register allocation: the slots of a function's virtual registers in a warp's register file. PTX declares
// thousands of registers, few of which are live at the same time. Registers with disjoint live ranges share a
// slot, so that the register files of the resident warps fit into the CPU's caches.

#include <cstdint>
#include <vector>

#include "ptx_vm/syntax.h"

namespace flatshard::ptx_vm {

inline constexpr uint32_t kSlotAlignment = 64;  // alignment for vector instructions

struct RegisterSlots {
  std::vector<uint32_t> slots;  // one slot per register, in declaration order
  uint32_t bytes = 0;           // total size of the slots
};

// Allocates slots from offset `first` on.
RegisterSlots allocate_registers(const Function& function, uint32_t first);

// The index of the named register in a declaration, either of a single register ("%p") or of a range
// ("%r<5>"); -1 if it is not declared there.
int place_in(const Registers& declared, std::string_view name);

}  // namespace flatshard::ptx_vm
