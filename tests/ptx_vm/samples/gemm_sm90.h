#pragma once
// A matrix product on the tensor cores of sm_90: y (M, N) = a (M, K) b (N, K)^T, bf16 with sums in f32. A
// sample that has all that such a kernel needs of the PTX machine: tensor copies, a ring of mbarriers between
// a warpgroup that copies and two that multiply, wgmma, registers that change hands, swizzled tiles.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard::ptx_vm {

// Is there a device that runs it?
bool gemm_sm90_runs();
// N and K are multiples of 8, and all tensors begin at a multiple of 16 bytes.
void gemm_sm90(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b);

}  // namespace flatshard::ptx_vm
