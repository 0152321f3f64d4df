#pragma once
// Matrix products by the project's own kernel, with the instructions of sm_90 (Hopper), for 16-bit operands.
// A build without code for sm_90 contains gemm_sm90_missing.cpp instead.

#include "kernels/gemm.h"

namespace flatshard::cuda {

// Returns whether the build has the kernel and the current GPU is an sm_90.
bool has_gemm_sm90();
// Returns whether the kernel supports the product: its operands have 16 bits, rows of all matrices begin at
// multiples of 16 bytes, and c has a multiple of 8 columns. It needs no GPU, so that plans can ask.
bool multiplies_on_sm90(const Gemm& g);
// Returns whether it also supports what the product ends with: rows must begin at multiples of 16 bytes, and
// the end must take c as it lies in memory. A rotation must be of whole heads of 64 or 128 elements.
bool ends_on_sm90(const Gemm& g);
void gemm_sm90(Stream& stream, const Gemm& g);

// Parts of these conditions, for other products by the kernel. `stride` is the elements between rows.
bool rows_are_aligned(const Tensor& matrix, int64_t stride);
bool fits_end(const ProductEnd& end, const Tensor& c, int64_t stride, bool transpose_b);

}  // namespace flatshard::cuda
