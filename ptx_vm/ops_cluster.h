#pragma once
// The cluster barrier, which shares its opcode with the block barriers.

#include "ptx_vm/decode.h"

namespace flatshard::ptx_vm {

void decode_cluster_barrier(Decoder& d);

}  // namespace flatshard::ptx_vm
