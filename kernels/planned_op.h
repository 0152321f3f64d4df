#pragma once
// The part of an op that runs on a planning stream: it computes nothing, and a recording of the stream stores
// its costs.

#include "runtime/recording.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// The call of an op whose time depends on the shape of one tensor.
template <class Args>
OpCall call_of(const char* op, const Args& a, const Tensor& of) {
  OpCall call{.name = op, .dtype = of.dtype, .flops = flops(a), .bytes = min_bytes(a)};
  for (int i = 0; i < of.shape.rank(); ++i) call.shape[static_cast<size_t>(i)] = of.shape[i];
  return call;
}

// Returns whether the stream only plans, in which case the op returns at once. Records the call if the stream
// is recorded.
template <class Args>
bool plans(const Stream& stream, const char* op, const Args& a, const Tensor& of) {
  if (stream.recorded()) stream.note(call_of(op, a, of));
  return stream.planning();
}

}  // namespace flatshard
