// The elementwise operations on the GPU. All but softcap give the same bits as on the CPU.
//
// Memory bandwidth limits casts, sums and scaling, which take at most 8 instructions an element (flat.cuh). A
// cast of fp32 to bf16 moves 6 bytes with 32 registers, a sum 6 bytes with 36, scaling and soft caps 4 bytes
// with 25 and 32. Instruction issue limits a soft cap of bf16: 29 instructions, of a budget of 25.

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

template <class T>
struct AddOp {
  T* y;
  const T *a, *b;
  float factor;

  template <int N>
  struct Inputs {
    Pack<T, N> a, b;
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    return {load<T, N>(a + i), load<T, N>(b + i)};
  }
  template <int N>
  __device__ void write(int64_t i, const Inputs<N>& in) const {
    Pack<T, N> out;
    for (int j = 0; j < N; ++j)
      out.element[j] = from_float<T>(fmaf(to_float(in.b.element[j]), factor, to_float(in.a.element[j])));
    store<T, N>(y + i, out);
  }
};

template <class T>
struct ScaleOp {
  T* y;
  const T* x;
  float factor;

  template <int N>
  __device__ Pack<T, N> read(int64_t i) const {
    return load<T, N>(x + i);
  }
  template <int N>
  __device__ void write(int64_t i, Pack<T, N> v) const {
    for (int j = 0; j < N; ++j) v.element[j] = from_float<T>(to_float(v.element[j]) * factor);
    store<T, N>(y + i, v);
  }
};

template <class T>
struct SoftcapOp {
  T* y;
  const T* x;
  float cap, inverse;

  template <int N>
  __device__ Pack<T, N> read(int64_t i) const {
    return load<T, N>(x + i);
  }
  template <int N>
  __device__ void write(int64_t i, Pack<T, N> v) const {
    for (int j = 0; j < N; ++j) v.element[j] = from_float<T>(cap * tanh_of(to_float(v.element[j]) * inverse));
    store<T, N>(y + i, v);
  }
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

void add(Stream& stream, const Add& a) {
  visit_float(a.y.dtype, [&]<class T>() {
    const AddOp<T> op{a.y.as<T>(), a.a.as<T>(), a.b.as<T>(), a.factor};
    launch_flat<kPackSize<T>>(stream, "add", op, a.y.size(), packable<T>(0, op.y, op.a, op.b));
  });
}

void scale(Stream& stream, const Scale& a) {
  visit_float(a.y.dtype, [&]<class T>() {
    const ScaleOp<T> op{a.y.as<T>(), a.x.as<T>(), a.factor};
    launch_flat<kPackSize<T>>(stream, "scale", op, a.y.size(), packable<T>(0, op.y, op.x));
  });
}

void softcap(Stream& stream, const Softcap& a) {
  visit_float(a.y.dtype, [&]<class T>() {
    const SoftcapOp<T> op{a.y.as<T>(), a.x.as<T>(), a.cap, 1 / a.cap};
    launch_flat<kPackSize<T>>(stream, "softcap", op, a.y.size(), packable<T>(0, op.y, op.x));
  });
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
