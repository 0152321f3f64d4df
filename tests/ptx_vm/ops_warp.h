#pragma once
// bar.warp.sync, whose opcode it shares with the barriers of the block.

#include "tests/ptx_vm/decode.h"

namespace flatshard::ptx_vm {

void decode_warp_barrier(Decoder& d);

}  // namespace flatshard::ptx_vm
