#pragma once
// All loads and stores: checks addresses and translates them to host pointers.

#include "ptx_vm/warp.h"

namespace flatshard::ptx_vm {

enum class Access { read, write, update };  // update: an atomic access

// Host pointers of the active lanes. Most instructions access contiguous memory or one address with all
// lanes; then only the first pointer is set.
struct Places {
  enum class Pattern { scattered, side_by_side, all_at_one };
  Pattern pattern = Pattern::scattered;
  bool collides = false;  // two lanes write to the same address
  unsigned char* data[kLanes];

  unsigned char* at(int lane, uint32_t bytes) const {
    return pattern == Pattern::scattered    ? data[lane]
           : pattern == Pattern::all_at_one ? data[0]
                                            : data[0] + static_cast<uint32_t>(lane) * bytes;
  }
};

// The op has the offset and the space, and `base_slot` the base addresses. Throws Finding.
void resolve(Warp& warp, const Op& op, uint32_t base_slot, uint32_t bytes, Access access, Places* places);
// Resolves shared-memory addresses that are not in a register.
void resolve_shared(Warp& warp, const Op& op, const uint64_t* address, uint32_t bytes, Access access,
                    Places* places);

// Checks an access by asynchronous work to contiguous memory. The space is global, shared or cluster (a
// shared-memory address). Throws Finding.
unsigned char* touch(Warp& actor, Space space, uint64_t address, uint64_t bytes, Access access);

}  // namespace flatshard::ptx_vm
