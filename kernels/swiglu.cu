// SwiGLU and GEGLU on the GPU. Index i counts the elements of y; gate, up and y may be columns of wider rows.
//
// Memory bandwidth limits both (flat.cuh): an element takes 24 instructions of a budget of 38 with 48
// registers, and in the backward pass 36 of 64 with 64. GEGLU takes 28 and 44.

#include "kernels/flat.cuh"
#include "kernels/gates.cuh"
#include "kernels/swiglu.h"

namespace flatshard::cuda {
namespace {

template <class T, class Of>
struct Forward {
  T* y;
  const T *gate, *up;
  PackedRows rows;
  int64_t y_spare;  // number of columns at the end of a row of y that are not written

  template <int N>
  struct Inputs {
    T* y;
    Pack<T, N> gate, up;
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    const int64_t row = rows.row(i), at = i + row * (rows.stride - rows.width);
    return {y + i + row * y_spare, load<T, N>(gate + at), load<T, N>(up + at)};
  }
  template <int N>
  __device__ void write(int64_t, const Inputs<N>& in) const {
    Pack<T, N> out;
    for (int j = 0; j < N; ++j) {
      out.element[j] = from_float<T>(gated<Of>(to_float(in.gate.element[j]), to_float(in.up.element[j])));
    }
    store<T, N>(in.y, out);
  }
};

template <class T, class Of>
struct Backward {
  T *dgate, *dup;
  const T *dy, *gate, *up;
  PackedRows rows;

  template <int N>
  struct Inputs {
    int64_t at;
    Pack<T, N> dy, gate, up;
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    const int64_t at = rows.offset(i);
    return {at, load<T, N>(dy + i), load<T, N>(gate + at), load<T, N>(up + at)};
  }
  template <int N>
  __device__ void write(int64_t, const Inputs<N>& in) const {
    Pack<T, N> gate_out, up_out;
    for (int j = 0; j < N; ++j) {
      const GatedGradient d = gated_gradient<Of>(to_float(in.dy.element[j]), to_float(in.gate.element[j]),
                                                 to_float(in.up.element[j]));
      gate_out.element[j] = from_float<T>(d.gate);
      up_out.element[j] = from_float<T>(d.up);
    }
    store<T, N>(dgate + in.at, gate_out);
    store<T, N>(dup + in.at, up_out);
  }
};

// Calls launch.operator()<T, Of>().
template <class Launch>
void visit(DType dtype, Gate function, Launch&& launch) {
  visit_float(dtype, [&]<class T>() {
    visit_gate(function, [&]<class Of>() { launch.template operator()<T, Of>(); });
  });
}

}  // namespace

void swiglu_forward(Stream& stream, const SwigluForward& a, int64_t row_stride, int64_t y_stride) {
  visit(a.y.dtype, a.function, [&]<class T, class Of>() {
    const int64_t F = a.y.shape[-1];
    const Forward<T, Of> op{a.y.as<T>(), a.gate.as<T>(), a.up.as<T>(), {F, row_stride}, y_stride - F};
    launch_flat<kPackSize<T>>(
        stream, "swiglu_forward", op, a.y.size(),
        packable<T>(F, op.y, op.gate, op.up) && packable<T>(row_stride) && packable<T>(y_stride));
  });
}

void swiglu_backward(Stream& stream, const SwigluBackward& a, int64_t row_stride) {
  visit(a.dy.dtype, a.function, [&]<class T, class Of>() {
    const int64_t F = a.dy.shape[-1];
    const Backward<T, Of> op{a.dgate.as<T>(), a.dup.as<T>(), a.dy.as<T>(),
                             a.gate.as<T>(),  a.up.as<T>(),  {F, row_stride}};
    launch_flat<kPackSize<T>>(
        stream, "swiglu_backward", op, a.dy.size(),
        packable<T>(F, op.dy, op.dgate, op.dup, op.gate, op.up) && packable<T>(row_stride));
  });
}

}  // namespace flatshard::cuda
