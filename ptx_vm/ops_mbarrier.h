#pragma once
// cp.async.mbarrier.arrive, which shares its opcode with the copies it tracks.

#include "ptx_vm/decode.h"

namespace flatshard::ptx_vm {

void decode_copy_arrival(Decoder& d);

}  // namespace flatshard::ptx_vm
