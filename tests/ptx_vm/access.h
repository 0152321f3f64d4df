#pragma once
// Every load and store passes through here: addresses become host pointers after all checks.

#include "tests/ptx_vm/warp.h"

namespace flatshard::ptx_vm {

enum class Access { read, write, update };  // update: an atomic

// Where the active lanes' bytes lie. Most instructions access one piece of memory side by side, or one place
// with all lanes; then only the first pointer is set.
struct Places {
  enum class Pattern { scattered, side_by_side, all_at_one };
  Pattern pattern = Pattern::scattered;
  bool collides = false;  // two lanes write to one place
  unsigned char* data[kLanes];

  unsigned char* at(int lane, uint32_t bytes) const {
    return pattern == Pattern::scattered    ? data[lane]
           : pattern == Pattern::all_at_one ? data[0]
                                            : data[0] + static_cast<uint32_t>(lane) * bytes;
  }
};

// The op holds offset and space, `base_slot` the addresses. Throws Finding.
void resolve(Warp& warp, const Op& op, uint32_t base_slot, uint32_t bytes, Access access, Places* places);
// The same for addresses of shared memory that lie in no register.
void resolve_shared(Warp& warp, const Op& op, const uint64_t* address, uint32_t bytes, Access access,
                    Places* places);

// What asynchronous work does with one piece of memory: checked and noted as its own. In `space`
// global, shared or cluster (an address as shared memory has it). Throws Finding.
unsigned char* touch(Warp& actor, Space space, uint64_t address, uint64_t bytes, Access access);

}  // namespace flatshard::ptx_vm
