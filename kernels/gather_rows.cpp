#include "kernels/gather_rows.h"

#include <algorithm>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/packed.h"
#include "kernels/parallel_write.h"

namespace flatshard {
namespace {

// Checks the N rows and the table that `index` refers to, and sets the strides.
template <class Args>
Args checked(const char* op, Args a, const char* rows_name, const Tensor& rows, const char* table_name,
             const Tensor& table) {
  check(is_float(rows.dtype) && rows.shape.rank() == 2, op, ": ", rows_name, " is ", rows.dtype, " ",
        rows.shape, ", must be (rows, columns) in f32, bf16 or f16");
  check_table(op, table_name, table, rows.dtype, rows.shape[1]);
  check_each(op, "index", a.index, DType::i32, rows.shape[0], "rows");
  check(a.y.empty() || a.x.empty() || a.y.data == nullptr || a.y.data != a.x.data, op,
        ": x and y must not share memory");
  a.y_stride = stride_or_width(op, a.y_stride, a.y.shape[1]);
  a.x_stride = stride_or_width(op, a.x_stride, a.x.shape[1]);
  return a;
}

void check_index(const char* op, const Tensor& index, int64_t rows) {
  const int32_t* number = index.as<int32_t>();
  for (int64_t i = 0; i < index.size(); ++i)
    check(number[i] < rows, op, ": index ", number[i], " at ", i, " is outside the table of ", rows, " rows");
}

}  // namespace

namespace cpu {
namespace {

using namespace simd;

template <class T>
void gather_rows(const GatherRows& a) {
  const int64_t W = a.y.shape[1];
  const int32_t* index = a.index.as<int32_t>();
  parallel_blocks(a.y.shape[0], rows_per_block(W), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* y = a.y.as<T>() + i * a.y_stride;
      if (index[i] < 0)
        std::fill_n(y, W, T(0.0f));
      else
        std::copy_n(a.x.as<T>() + index[i] * a.x_stride, W, y);
    }
  });
}

template <class T>
void scatter_rows(const ScatterRows& a) {
  const int64_t W = a.x.shape[1];
  const int32_t* index = a.index.as<int32_t>();
  parallel_blocks(a.x.shape[0], rows_per_block(W), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (index[i] < 0) continue;
      const T* x = a.x.as<T>() + i * a.x_stride;
      T* y = a.y.as<T>() + index[i] * a.y_stride;
      if (a.add)
        for_each_vector(
            W, [&](int64_t c, auto lanes) { store(y + c, load(y + c, lanes) + load(x + c, lanes), lanes); });
      else
        std::copy_n(x, W, y);
    }
  });
}

}  // namespace
}  // namespace cpu

void gather_rows(Stream& stream, const GatherRows& arguments) {
  const GatherRows a = checked("gather_rows", arguments, "y", arguments.y, "x", arguments.x);
  if (a.y.empty() || plans(stream, "gather_rows", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::gather_rows(stream, a);
  stream.run("gather_rows", [a] {
    check_index("gather_rows", a.index, a.x.shape[0]);
    visit_float(a.y.dtype, [&]<class T>() { cpu::gather_rows<T>(a); });
  });
}

void scatter_rows(Stream& stream, const ScatterRows& arguments) {
  const ScatterRows a = checked("scatter_rows", arguments, "x", arguments.x, "y", arguments.y);
  if (a.x.empty() || plans(stream, "scatter_rows", a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::scatter_rows(stream, a);
  stream.run("scatter_rows", [a] {
    check_index("scatter_rows", a.index, a.y.shape[0]);
    visit_float(a.y.dtype, [&]<class T>() { cpu::scatter_rows<T>(a); });
  });
}

double min_bytes(const GatherRows& a) { return 2 * bytes_of(a.y) + bytes_of(a.index); }
double min_bytes(const ScatterRows& a) { return (a.add ? 3 : 2) * bytes_of(a.x) + bytes_of(a.index); }
double flops(const GatherRows&) { return 0; }
double flops(const ScatterRows& a) { return a.add ? static_cast<double>(a.x.size()) : 0.0; }

}  // namespace flatshard
