#pragma once
// Dropout, where each value is dropped with probability p:
//   mask[i] = uniform(first + i) >= p      y = x mask / (1 - p)      dx += or = dy mask / (1 - p)
// The mask is not stored: the backward pass generates it again from the same random stream. It depends only
// on the global index, so splitting x does not change it. y may be x, and dx may be dy.

#include "runtime/rng.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// Either direction: out = or += in mask / (1 - p), where the backward pass has dx and dy.
struct Dropout {
  Tensor out;               // any shape
  Tensor in;                // same shape and dtype as out
  float p;                  // probability of a drop, in [0, 1)
  RandomStream random;      // made from the run's seed, the layer's name and the micro-step
  int64_t first = 0;        // global index of the first element of `in`
  bool accumulate = false;  // +=, for the residual stream
  int64_t in_stride = 0;    // elements between rows; 0: rows are contiguous
};

void dropout_forward(Stream& stream, const Dropout& a);
void dropout_backward(Stream& stream, const Dropout& a);

double min_bytes(const Dropout& a);
double flops(const Dropout& a);

namespace cuda {
void dropout(Stream& stream, const char* op, const Dropout& a);
}  // namespace cuda

}  // namespace flatshard
