#pragma once
// The sum over lanes by a fixed binary tree, in fp32:
//   y = tree(lanes)   or   y += tree(lanes)
// Each level of the tree adds neighbors and carries an odd last element up: 7 lanes give
// ((l0+l1) + (l2+l3)) + ((l4+l5) + l6).
//
// The tree can be built incrementally, like a binary counter: two partial sums of 2^k lanes each, the first
// starting at a multiple of 2^(k+1), are combined by y += with one f32 lane, and at the end smaller partial
// sums are added to larger ones. The result has the bits of one call over all lanes.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct OrderedSum {
  Tensor y;                 // (...) f32; may be one of the lanes if the lanes are f32
  Tensor lanes;             // (L, ...) f32, bf16 or f16: L >= 1 times the elements of y
  bool accumulate = false;  // y += instead of y =
};

void ordered_sum(Stream& stream, const OrderedSum& a);

double min_bytes(const OrderedSum& a);
double flops(const OrderedSum& a);

namespace cuda {
void ordered_sum(Stream& stream, const OrderedSum& a);
}  // namespace cuda

}  // namespace flatshard
