#pragma once
// Columns of a packed matrix. One matrix product gives q, k and v, or gate and up, side by side in each row;
// the ops that take such a part get a tensor whose rows lie a stated stride apart. The stride stands in the
// op's arguments, in elements; 0 says that rows are contiguous.

#include "runtime/tensor.h"

namespace flatshard {

// Columns [begin, begin + n) of every row of `packed`, where `shape` is (rows, ...) with n elements a row.
// Their stride is packed.shape[-1].
inline Tensor packed_columns(const Tensor& packed, int64_t begin, const Shape& shape) {
  const int64_t width = packed.shape[-1], n = shape[0] == 0 ? 0 : shape.size() / shape[0];
  check(shape[0] == packed.rows() && begin >= 0 && begin + n <= width, "columns [", begin, ", ", begin + n,
        ") as ", shape, " of a packed tensor ", packed.shape);
  Tensor part{packed.data, packed.dtype, shape, packed.device};
  if (part.data) part.data = static_cast<char*>(part.data) + begin * size_of(packed.dtype);
  return part;
}

// The stride an op works with: `stride`, or `width` where it is 0.
inline int64_t stride_or_width(const char* op, int64_t stride, int64_t width) {
  check(stride == 0 || stride >= width, op, ": rows of ", width, " elements lie ", stride, " apart");
  return stride == 0 ? width : stride;
}

}  // namespace flatshard
