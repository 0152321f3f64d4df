// The gated unit of gpt_oss on the GPU. Index i counts the pairs; memory bandwidth limits both passes.

#include "kernels/clamped_glu.h"
#include "kernels/flat.cuh"

namespace flatshard::cuda {
namespace {

// NaN stays NaN.
struct Bounded {
  __device__ Bounded(float x_gate, float x_up, float limit)
      : gate(x_gate > limit ? limit : x_gate),
        up((x_up > limit    ? limit
            : x_up < -limit ? -limit
                            : x_up) +
           1.0f),
        share(sigmoid(gate * kClampedSlope)) {}
  float gate, up, share;
};

// N pairs from element 2 i on. A single pair may begin at any element.
template <class T, int N>
__device__ Pack<T, 2 * N> load_pairs(const T* x, int64_t i) {
  if constexpr (N == 1)
    return {x[2 * i], x[2 * i + 1]};
  else
    return load<T, 2 * N>(x + 2 * i);
}
template <class T, int N>
__device__ void store_pairs(T* x, int64_t i, const Pack<T, 2 * N>& pairs) {
  if constexpr (N == 1) {
    x[2 * i] = pairs.element[0];
    x[2 * i + 1] = pairs.element[1];
  } else {
    store<T, 2 * N>(x + 2 * i, pairs);
  }
}

template <class T>
struct Forward {
  T* y;
  const T* x;
  float limit;

  template <int N>
  __device__ Pack<T, 2 * N> read(int64_t i) const {
    return load_pairs<T, N>(x, i);
  }
  template <int N>
  __device__ void write(int64_t i, const Pack<T, 2 * N>& pairs) const {
    Pack<T, N> out;
    for (int n = 0; n < N; ++n) {
      const Bounded b(to_float(pairs.element[2 * n]), to_float(pairs.element[2 * n + 1]), limit);
      out.element[n] = from_float<T>(b.gate * b.share * b.up);
    }
    store<T, N>(y + i, out);
  }
};

template <class T>
struct Backward {
  T* dx;
  const T *dy, *x;
  float limit;

  template <int N>
  struct Inputs {
    Pack<T, N> dy;
    Pack<T, 2 * N> pairs;
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    return {load<T, N>(dy + i), load_pairs<T, N>(x, i)};
  }
  template <int N>
  __device__ void write(int64_t i, const Inputs<N>& in) const {
    Pack<T, 2 * N> out;
    for (int n = 0; n < N; ++n) {
      const float gate = to_float(in.pairs.element[2 * n]), up = to_float(in.pairs.element[2 * n + 1]);
      const float dy_n = to_float(in.dy.element[n]);
      const Bounded b(gate, up, limit);
      const float slope = b.share * fmaf(b.gate * kClampedSlope, 1.0f - b.share, 1.0f);
      out.element[2 * n] = from_float<T>(gate > limit ? 0.0f : dy_n * b.up * slope);
      out.element[2 * n + 1] = from_float<T>(fabsf(up) > limit ? 0.0f : dy_n * b.gate * b.share);
    }
    store_pairs<T, N>(dx, i, out);
  }
};

}  // namespace

void clamped_glu_forward(Stream& stream, const ClampedGluForward& a) {
  visit_float(a.y.dtype, [&]<class T>() {
    const Forward<T> op{a.y.as<T>(), a.x.as<T>(), a.limit};
    launch_flat<kPackSize<T> / 2>(stream, "clamped_glu_forward", op, a.y.size(), packable<T>(0, op.y, op.x));
  });
}

void clamped_glu_backward(Stream& stream, const ClampedGluBackward& a) {
  visit_float(a.dy.dtype, [&]<class T>() {
    const Backward<T> op{a.dx.as<T>(), a.dy.as<T>(), a.x.as<T>(), a.limit};
    launch_flat<kPackSize<T> / 2>(stream, "clamped_glu_backward", op, a.dy.size(),
                                  packable<T>(0, op.dy, op.dx, op.x));
  });
}

}  // namespace flatshard::cuda
