// GELU on the GPU.
//
// Memory bandwidth limits it (flat.cuh). In the forward pass, an element moves 4 bytes and takes 21
// instructions of a budget of 25; with 30 registers, all 2048 threads of an SM have 64 KiB in flight. In the
// backward pass it is 6 bytes, 30 instructions of 38, and 43 registers: 1280 threads have 80 KiB. These
// figures are for tanh. GELU with erf takes 32 instructions forward, a quarter above the budget, and 36
// backward.

#include "kernels/flat.cuh"
#include "kernels/gelu.h"
#include "kernels/gelu_math.cuh"

namespace flatshard::cuda {
namespace {

template <class T, class Of>
struct GeluOp {
  T* y;
  const T* x;

  template <int N>
  __device__ Pack<T, N> read(int64_t i) const {
    return load<T, N>(x + i);
  }
  template <int N>
  __device__ void write(int64_t i, Pack<T, N> v) const {
    for (int j = 0; j < N; ++j) {
      const float value = to_float(v.element[j]);
      v.element[j] = from_float<T>(value * Of::probability(value));
    }
    store<T, N>(y + i, v);
  }
};

template <class T, class Of>
struct GeluGradientOp {
  T* dx;
  const T *dy, *x;

  template <int N>
  struct Inputs {
    Pack<T, N> dy, x;
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    return {load<T, N>(dy + i), load<T, N>(x + i)};
  }
  template <int N>
  __device__ void write(int64_t i, const Inputs<N>& in) const {
    Pack<T, N> out;
    for (int j = 0; j < N; ++j) {
      const float x = to_float(in.x.element[j]);
      out.element[j] = from_float<T>(to_float(in.dy.element[j]) * Of::slope(x, Of::probability(x)));
    }
    store<T, N>(dx + i, out);
  }
};

// Calls f.operator()<T, Of>().
template <class F>
void visit(DType dtype, GeluKind kind, F&& f) {
  visit_float(dtype, [&]<class T>() {
    if (kind == GeluKind::tanh) f.template operator()<T, TanhGelu>();
    if (kind == GeluKind::erf) f.template operator()<T, ErfGelu>();
    if (kind == GeluKind::quick) f.template operator()<T, QuickGelu>();
  });
}

}  // namespace

void gelu_forward(Stream& stream, const GeluForward& a) {
  visit(a.x.dtype, a.kind, [&]<class T, class Of>() {
    const GeluOp<T, Of> op{a.y.as<T>(), a.x.as<T>()};
    launch_flat<kPackSize<T>>(stream, "gelu_forward", op, a.x.size(), packable<T>(0, op.y, op.x));
  });
}

void gelu_backward(Stream& stream, const GeluBackward& a) {
  visit(a.x.dtype, a.kind, [&]<class T, class Of>() {
    const GeluGradientOp<T, Of> op{a.dx.as<T>(), a.dy.as<T>(), a.x.as<T>()};
    launch_flat<kPackSize<T>>(stream, "gelu_backward", op, a.x.size(), packable<T>(0, op.dx, op.dy, op.x));
  });
}

}  // namespace flatshard::cuda
