#pragma once
// The cluster's barrier, which shares its opcode with those of the block.

#include "tests/ptx_vm/decode.h"

namespace flatshard::ptx_vm {

void decode_cluster_barrier(Decoder& d);

}  // namespace flatshard::ptx_vm
