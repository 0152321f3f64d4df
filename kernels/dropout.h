#pragma once
// Dropout with probability p of a value to be dropped:
//   mask[i] = uniform(first + i) >= p      y = x mask / (1 - p)      dx += or = dy mask / (1 - p)
// No mask is stored: the backward pass makes it again from the same random stream. The mask depends on the
// global index only, so any cut of x gives the same one. y may be x, and dx may be dy.

#include "runtime/rng.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct DropoutForward {
  Tensor y;             // any shape
  Tensor x;             // of y's shape and dtype
  float p;              // in [0, 1)
  RandomStream random;  // of the run's seed, the name of the place in the model, and the micro-step
  int64_t first = 0;    // the global index of x's first element
};

struct DropoutBackward {
  Tensor dx;
  Tensor dy;  // of dx's shape and dtype
  float p;
  RandomStream random;
  int64_t first = 0;
  bool accumulate_dx = false;  // dx += instead of dx =, for the residual stream
};

// Both directions: out = or += in mask / (1 - p).
struct MaskedProduct {
  Tensor out, in;
  float p;
  RandomStream random;
  int64_t first;
  bool accumulate;
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
