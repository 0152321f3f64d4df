#pragma once
// Matrix products by the project's own kernel, with the instructions of sm_90 (Hopper), for 16-bit operands.
// A build without code for sm_90 contains gemm_sm90_missing.cpp instead.

#include "kernels/gemm.h"

namespace flatshard::cuda {

// Returns whether the build has the kernel and the current GPU is an sm_90.
bool has_gemm_sm90();
// Returns whether it has, and the kernel supports the product: rows of all matrices begin at multiples of 16
// bytes, and c has a multiple of 8 columns.
bool multiplies_on_sm90(const Gemm& g);
// Returns whether it also supports what the product ends with: rows must begin at multiples of 16 bytes, and
// the end must take c as it lies in memory.
bool ends_on_sm90(const Gemm& g);
void gemm_sm90(Stream& stream, const Gemm& g);

}  // namespace flatshard::cuda
