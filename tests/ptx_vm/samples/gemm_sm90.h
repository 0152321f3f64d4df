#pragma once
// A matrix product on the tensor cores of sm_90: y (M, N) = a (M, K) b (N, K)^T, bf16 with sums in f32. A
// sample that uses all features of such kernels: tensor copies, a ring of mbarriers between one producer and
// two consumer warpgroups, wgmma, register reallocation, swizzled tiles.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard::ptx_vm {

// Whether there is a device that supports it.
bool gemm_sm90_runs();
// N and K must be multiples of 8, and all tensors 16-byte aligned.
void gemm_sm90(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b);

}  // namespace flatshard::ptx_vm
