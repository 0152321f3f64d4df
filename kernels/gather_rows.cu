// Rows by their number on the GPU, with the same bits as on the CPU. A thread reads the number of its row,
// which the threads of a row share, and then the row.
//
// Memory bandwidth limits it (flat.cuh): an element takes at most 16 instructions of a budget of 25 with 30
// registers, or 22 of 38 with 46 in a scatter that adds.

#include "kernels/flat.cuh"
#include "kernels/gather_rows.h"

namespace flatshard::cuda {
namespace {

template <class T>
struct GatherRowsOp {
  T* y;
  const T* x;
  const int32_t* index;
  PackedRows rows;  // the rows of y
  int64_t x_stride, x_rows;

  template <int N>
  __device__ Pack<T, N> read(int64_t i) const {
    const int64_t row = rows.row(i);
    const int32_t number = index[row];
    require(number < x_rows);
    return number < 0 ? Pack<T, N>{} : load<T, N>(x + number * x_stride + (i - row * rows.width));
  }
  template <int N>
  __device__ void write(int64_t i, const Pack<T, N>& in) const {
    store_at_once<T, N>(y + rows.offset(i), in);
  }
};

template <class T, bool kAdd>
struct ScatterRowsOp {
  T* y;
  const T* x;
  const int32_t* index;
  PackedRows rows;  // the rows of x
  int64_t y_stride, y_rows;

  template <int N>
  struct Inputs {
    int64_t to;  // offset in y; -1: skipped
    Pack<T, N> x, y;
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    const int64_t row = rows.row(i);
    const int32_t number = index[row];
    require(number < y_rows);
    Inputs<N> in{};
    in.to = -1;
    if (number < 0) return in;
    in.to = number * y_stride + (i - row * rows.width);
    in.x = load<T, N>(x + rows.offset(i));
    if (kAdd) in.y = load<T, N>(y + in.to);
    return in;
  }
  template <int N>
  __device__ void write(int64_t, Inputs<N> in) const {
    if (in.to < 0) return;
    if (kAdd)
      for (int j = 0; j < N; ++j)
        in.x.element[j] = from_float<T>(to_float(in.y.element[j]) + to_float(in.x.element[j]));
    store_at_once<T, N>(y + in.to, in.x);
  }
};

template <class T, class Args>
bool rows_packable(const Args& a) {
  return packable<T>(a.x.shape[1], a.y.data, a.x.data) && packable<T>(a.y_stride) && packable<T>(a.x_stride);
}

}  // namespace

void gather_rows(Stream& stream, const GatherRows& a) {
  visit_float(a.y.dtype, [&]<class T>() {
    const GatherRowsOp<T> op{a.y.as<T>(), a.x.as<T>(), a.index.as<int32_t>(), {a.y.shape[1], a.y_stride},
                             a.x_stride,  a.x.shape[0]};
    launch_flat<kPackSize<T>>(stream, "gather_rows", op, a.y.size(), rows_packable<T>(a));
  });
}

void scatter_rows(Stream& stream, const ScatterRows& a) {
  visit_float(a.y.dtype, [&]<class T>() {
    const auto launch = [&]<bool kAdd>() {
      const ScatterRowsOp<T, kAdd> op{
          a.y.as<T>(), a.x.as<T>(), a.index.as<int32_t>(), {a.x.shape[1], a.x_stride},
          a.y_stride,  a.y.shape[0]};
      launch_flat<kPackSize<T>>(stream, "scatter_rows", op, a.x.size(), rows_packable<T>(a));
    };
    a.add ? launch.template operator()<true>() : launch.template operator()<false>();
  });
}

}  // namespace flatshard::cuda
