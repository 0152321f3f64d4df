#include "kernels/op.h"

namespace flatshard {

void check_like(const char* op, const char* name, const Tensor& t, const char* other, const Tensor& like) {
  check(t.shape == like.shape && t.dtype == like.dtype, op, ": ", name, " is ", t.dtype, " ", t.shape,
        ", must be like ", other, " ", like.dtype, " ", like.shape);
}

void check_elements(const char* op, const char* name, const Tensor& t, DType dtype, int64_t count) {
  check(t.dtype == dtype && t.size() == count, op, ": ", name, " is ", t.dtype, " ", t.shape, ", must be ",
        dtype, " with ", count, " elements");
}

void check_each(const char* op, const char* name, const Tensor& t, DType dtype, int64_t count,
                const char* of) {
  check(t.dtype == dtype && t.size() == count, op, ": ", name, " is ", t.dtype, " ", t.shape, ", must be ",
        dtype, " with one element for each of ", count, " ", of);
}

void check_table(const char* op, const char* name, const Tensor& t, DType dtype, int64_t columns) {
  check(t.dtype == dtype && t.shape.rank() == 2 && t.shape[1] == columns, op, ": ", name, " is ", t.dtype,
        " ", t.shape, ", must be ", dtype, " (rows, ", columns, ")");
}

void check_gradient(const char* op, const char* name, const Tensor& dw, const Tensor& w) {
  check(dw.empty() || (dw.dtype == DType::f32 && dw.size() == w.size()), op, ": ", name, " is ", dw.dtype,
        " ", dw.shape, ", must be f32 ", w.shape, " like w");
}

void check_positions(const char* op, const Tensor& positions, int64_t tokens, int64_t rows) {
  const int32_t* p = positions.as<int32_t>();
  for (int64_t t = 0; t < positions.size(); ++t)
    check(p[t] >= 0 && p[t] < rows, op, ": position ", p[t], " of token ", t % tokens,
          " is outside the table of ", rows);
}

bool plans(const Stream& stream, const char* op, const Tensor& of, double flops, double min_bytes) {
  if (stream.recorded()) {
    OpCall call{.name = op, .dtype = of.dtype, .flops = flops, .bytes = min_bytes};
    for (int i = 0; i < of.shape.rank(); ++i) call.shape[static_cast<size_t>(i)] = of.shape[i];
    stream.note(call);
  }
  return stream.planning();
}

}  // namespace flatshard
