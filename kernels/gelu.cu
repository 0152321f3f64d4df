// GELU on the GPU.

#include <numbers>

#include "kernels/flat.cuh"
#include "kernels/gelu.h"

namespace flatshard::cuda {
namespace {

constexpr float kTwoSqrtTwoOverPi =
    static_cast<float>(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

__device__ inline float probability(float x) {
  return sigmoid(kTwoSqrtTwoOverPi * x * fmaf(kCubic * x, x, 1.0f));
}
__device__ inline float slope(float x) {
  const float p = probability(x);
  const float inner = kTwoSqrtTwoOverPi * fmaf(3.0f * kCubic * x, x, 1.0f);
  return fmaf(x * p * (1.0f - p), inner, p);
}

template <class T>
struct Forward {
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
      v.element[j] = from_float<T>(value * probability(value));
    }
    store<T, N>(y + i, v);
  }
};

template <class T>
struct Backward {
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
    for (int j = 0; j < N; ++j)
      out.element[j] = from_float<T>(to_float(in.dy.element[j]) * slope(to_float(in.x.element[j])));
    store<T, N>(dx + i, out);
  }
};

}  // namespace

void gelu_forward(Stream& stream, const GeluForward& a) {
  visit_float(a.x.dtype, [&]<class T>() {
    const Forward<T> op{a.y.as<T>(), a.x.as<T>()};
    launch_flat<kPackSize<T>>(stream, "gelu_forward", op, a.x.size(), packable<T>(0, op.y, op.x));
  });
}

void gelu_backward(Stream& stream, const GeluBackward& a) {
  visit_float(a.x.dtype, [&]<class T>() {
    const Backward<T> op{a.dx.as<T>(), a.dy.as<T>(), a.x.as<T>()};
    launch_flat<kPackSize<T>>(stream, "gelu_backward", op, a.x.size(), packable<T>(0, op.dx, op.dy, op.x));
  });
}

}  // namespace flatshard::cuda
