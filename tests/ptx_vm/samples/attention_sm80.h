#pragma once
// The forward pass of attention on the tensor cores of sm_80, as kernels/attention.h defines it: bf16, head
// size 64 or 128. A sample that has all that such a kernel needs of the PTX machine: ldmatrix, mma, copies
// that run while others compute, swizzled tiles.

#include "kernels/attention.h"

namespace flatshard::ptx_vm {

void attention_sm80_forward(Stream& stream, const AttentionForward& a);

}  // namespace flatshard::ptx_vm
