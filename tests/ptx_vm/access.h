#pragma once
// Every load and store passes through here: addresses become host pointers after all checks.

#include "tests/ptx_vm/warp.h"

namespace flatshard::ptx_vm {

enum class Access { read, write, update };  // update: an atomic

// Where each active lane's `bytes` lie; op holds base slot (slot[at]), offset and space. Throws Finding.
// True when two lanes of this instruction write to one place.
bool resolve(Warp& warp, const Op& op, uint32_t base_slot, uint32_t bytes, Access access,
             unsigned char** data);

}  // namespace flatshard::ptx_vm
