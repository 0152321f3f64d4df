#pragma once
// Columns of a packed matrix. A fused projection produces q, k and v, or gate and up, side by side in each
// row. An op on such columns takes a tensor and a row stride in elements, where 0 means that rows are
// contiguous.

#include "runtime/tensor.h"

namespace flatshard {

// Columns [begin, begin + n) of each row of `packed`, where `shape` is (rows, ...) with n elements per row.
// The row stride is packed.shape[-1].
inline Tensor packed_columns(const Tensor& packed, int64_t begin, const Shape& shape) {
  const int64_t width = packed.shape[-1], n = shape[0] == 0 ? 0 : shape.size() / shape[0];
  check(shape[0] == packed.rows() && begin >= 0 && begin + n <= width, "columns [", begin, ", ", begin + n,
        ") as ", shape, " exceed the packed tensor ", packed.shape);
  Tensor part{packed.data, packed.dtype, shape, packed.device};
  if (part.data) part.data = static_cast<char*>(part.data) + begin * size_of(packed.dtype);
  return part;
}

// `stride`, or `width` if it is 0.
inline int64_t stride_or_width(const char* op, int64_t stride, int64_t width) {
  check(stride == 0 || stride >= width, op, ": row stride is ", stride,
        ", must be 0 or at least the row size ", width);
  return stride == 0 ? width : stride;
}

}  // namespace flatshard
