#pragma once
// y = x^T, a copy of a matrix with its rows as columns. x and y share no memory.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct Transpose {
  Tensor y;  // (C, R), of x's dtype
  Tensor x;  // (R, C), f32, bf16 or f16
};

void transpose(Stream& stream, const Transpose& a);

double min_bytes(const Transpose& a);
double flops(const Transpose& a);

namespace cuda {
void transpose(Stream& stream, const Transpose& a);
}  // namespace cuda

}  // namespace flatshard
