#pragma once
// The sum over lanes (micro-batches) in one fixed binary tree, in fp32:
//   y = tree(lanes)   or   y += tree(lanes)
// The tree adds neighbours and carries an odd last one up: l0 + l1, l2 + l3, ...; then sums of two, sums of
// four, and so on: 7 lanes are ((l0+l1) + (l2+l3)) + ((l4+l5) + l6).
//
// The tree may be built in pieces, like a binary counter: partial sums of equal, aligned numbers of lanes
// (a power of two) are joined by y += of one lane, f32, when both exist, and at the end the smaller into the
// larger. Whoever computed which piece, the bits are those of one call over all lanes.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct OrderedSum {
  Tensor y;                 // (...) f32
  Tensor lanes;             // (L, ...) f32, bf16 or f16; L >= 1 times the elements of y
  bool accumulate = false;  // y += instead of y =
};

void ordered_sum(Stream& stream, const OrderedSum& a);

double min_bytes(const OrderedSum& a);
double flops(const OrderedSum& a);

namespace cuda {
void ordered_sum(Stream& stream, const OrderedSum& a);
}  // namespace cuda

}  // namespace flatshard
