#pragma once
// The part of an op that runs on a planning stream: it computes nothing, and a recording of the stream stores
// its costs.

#include "runtime/recording.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// Returns whether the stream only plans, in which case the op returns at once. Records the call if the stream
// is recorded, for an op whose time depends on the shape of one tensor.
inline bool plans(const Stream& stream, const char* op, const Tensor& of, double flops, double min_bytes) {
  if (stream.recorded()) {
    OpCall call{.name = op, .dtype = of.dtype, .flops = flops, .bytes = min_bytes};
    for (int i = 0; i < of.shape.rank(); ++i) call.shape[static_cast<size_t>(i)] = of.shape[i];
    stream.note(call);
  }
  return stream.planning();
}
template <class Args>
bool plans(const Stream& stream, const char* op, const Args& a, const Tensor& of) {
  return plans(stream, op, of, flops(a), min_bytes(a));
}

}  // namespace flatshard
