// The elementwise operations on the GPU. All but softcap give the same bits as on the CPU.
//
// Memory bandwidth limits all but softcap, with at most 8 instructions an element and 36 registers
// (flat.cuh). Instruction issue limits a soft cap of bf16: 29 instructions, of a budget of 25.

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/flat.cuh"

namespace flatshard::cuda {
namespace {

template <class To, class From>
struct CastOp {
  To* y;
  const From* x;
  PackedRows y_rows, x_rows;

  template <int N>
  __device__ Pack<From, N> read(int64_t i) const {
    return load<From, N>(x + x_rows.offset(i));
  }
  template <int N>
  __device__ void write(int64_t i, const Pack<From, N>& in) const {
    Pack<To, N> out;
    for (int j = 0; j < N; ++j) out.element[j] = from_float<To>(to_float(in.element[j]));
    store_at_once<To, N>(y + y_rows.offset(i), out);
  }
};

struct Sum {
  float factor;
  __device__ float operator()(float a, float b) const { return fmaf(b, factor, a); }
};
struct Scaled {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct Capped {
  float cap, inverse;
  __device__ float operator()(float x) const { return cap * tanh_of(x * inverse); }
};

template <class T>
struct PlaceOp {
  T* y;
  const T* x;
  int64_t C, first;
  PackedRows rows;

  template <int N>
  __device__ Pack<T, N> read(int64_t i) const {
    const int64_t row = rows.row(i), column = i - row * rows.width - first;
    return column >= 0 && column < C ? load<T, N>(x + row * C + column) : Pack<T, N>{};
  }
  template <int N>
  __device__ void write(int64_t i, const Pack<T, N>& v) const {
    store_at_once<T, N>(y + rows.offset(i), v);
  }
};

}  // namespace

void cast(Stream& stream, const Cast& a, int64_t y_stride, int64_t x_stride) {
  const PackedRows y_rows{a.y.shape[-1], y_stride}, x_rows{a.x.shape[-1], x_stride};
  const bool contiguous = y_rows.width == y_stride && x_rows.width == x_stride;
  visit_float(a.y.dtype, [&]<class To>() {
    visit_float(a.x.dtype, [&]<class From>() {
      // A pack is a full access of the wider type and half an access of the narrower one.
      constexpr int kPack = std::min(kPackSize<To>, kPackSize<From>);
      const CastOp<To, From> op{a.y.as<To>(), a.x.as<From>(), y_rows, x_rows};
      const bool packs =
          contiguous || (y_rows.width % kPack == 0 && y_stride % kPack == 0 && x_stride % kPack == 0);
      launch_flat<kPack>(stream, "cast", op, a.y.size(), packs && packable<float>(0, op.y, op.x));
    });
  });
}

void add(Stream& stream, const Add& a) { launch_map(stream, "add", Sum{a.factor}, a.y, a.a, a.b); }
void scale(Stream& stream, const Scale& a) { launch_map(stream, "scale", Scaled{a.factor}, a.y, a.x); }
void softcap(Stream& stream, const Softcap& a) {
  launch_map(stream, "softcap", Capped{a.cap, 1 / a.cap}, a.y, a.x);
}

void place(Stream& stream, const Place& a, int64_t y_stride) {
  const int64_t width = a.y.shape[1], C = a.x.shape[1];
  visit_float(a.y.dtype, [&]<class T>() {
    const PlaceOp<T> op{a.y.as<T>(), a.x.as<T>(), C, a.first, {width, y_stride}};
    const bool packs = packable<T>(width) && packable<T>(y_stride) && packable<T>(a.first);
    launch_flat<kPackSize<T>>(stream, "place", op, a.y.size(), packs && packable<T>(C, op.y, op.x));
  });
}

}  // namespace flatshard::cuda
