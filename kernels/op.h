#pragma once
// What an op does before it computes: it checks its tensors, with errors that name the op, the tensor and
// what it must be. On a planning stream it then returns, and a recording of the stream stores its costs.

#include "runtime/recording.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// Shape and dtype of another tensor.
void check_like(const char* op, const char* name, const Tensor& t, const char* other, const Tensor& like);
void check_elements(const char* op, const char* name, const Tensor& t, DType dtype, int64_t count);
// One element for each of `count` rows, or what else `of` names.
void check_each(const char* op, const char* name, const Tensor& t, DType dtype, int64_t count,
                const char* of);
void check_table(const char* op, const char* name, const Tensor& t, DType dtype, int64_t columns);
// The gradient of w in f32; it may be empty.
void check_gradient(const char* op, const char* name, const Tensor& dw, const Tensor& w);
// Rows of a table for the rotation of heads; `positions` has those of all tokens on each axis.
void check_positions(const char* op, const Tensor& positions, int64_t tokens, int64_t rows);

// The size of tensors, for min_bytes().
template <class... Tensors>
double bytes_of(const Tensors&... tensors) {
  return static_cast<double>((tensors.bytes() + ...));
}

// Returns whether the stream only plans, in which case the op returns at once. Records the call if the stream
// is recorded, for an op whose time depends on the shape of one tensor.
bool plans(const Stream& stream, const char* op, const Tensor& of, double flops, double min_bytes);
template <class Args>
bool plans(const Stream& stream, const char* op, const Args& a, const Tensor& of) {
  return plans(stream, op, of, flops(a), min_bytes(a));
}

}  // namespace flatshard
