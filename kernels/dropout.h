#pragma once
// Dropout, where each value is dropped with probability p:
//   mask[i] = uniform(first + i) >= p      y = x mask / (1 - p)      dx += or = dy mask / (1 - p)
// The mask is not stored: the backward pass generates it again from the same random stream. It depends only
// on the global index, so splitting x does not change it. y may be x, and dx may be dy.

#include "runtime/rng.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct DropoutForward {
  Tensor y;              // any shape
  Tensor x;              // same shape and dtype as y
  float p;               // probability of a drop, in [0, 1)
  RandomStream random;   // made from the run's seed, the layer's name and the micro-step
  int64_t first = 0;     // global index of the first element of x
  int64_t x_stride = 0;  // elements between rows; 0: rows are contiguous
};

struct DropoutBackward {
  Tensor dx;
  Tensor dy;  // same shape and dtype as dx
  float p;
  RandomStream random;
  int64_t first = 0;
  bool accumulate_dx = false;  // dx += instead of dx =, for the residual stream
};

// The common form of both directions: out = or += in mask / (1 - p).
struct MaskedProduct {
  Tensor out, in;
  float p;
  RandomStream random;
  int64_t first;
  bool accumulate;
  int64_t in_stride;  // elements between rows of `in`
};

void dropout_forward(Stream& stream, const DropoutForward& a);
void dropout_backward(Stream& stream, const DropoutBackward& a);

double min_bytes(const DropoutForward& a);
double min_bytes(const DropoutBackward& a);
double flops(const DropoutForward& a);
double flops(const DropoutBackward& a);

namespace cuda {
void dropout(Stream& stream, const char* op, const MaskedProduct& a);
}  // namespace cuda

}  // namespace flatshard
