// Sinks of attention on the GPU.
//
// Memory bandwidth limits the forward pass, in which a warp owns a query of a head. In the backward pass a
// block adds up the queries of a head, a warp every eighth of them, so that the order is fixed.

#include "kernels/attention_sink.h"
#include "kernels/cuda_util.cuh"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

template <class T>
struct Rows {
  Rows(const Heads& heads)
      : first(heads.at<T>(0, 0)), stride(heads.stride()), D(static_cast<int>(heads.head_size())) {}
  __device__ T* at(int64_t row, int64_t head) const { return first + row * stride + head * D; }

  T* first;
  int64_t stride;
  int D;
};

template <class T>
struct Forward {
  Rows<T> o;
  float* lse;
  const T* sinks;
  int64_t rows, queries;  // queries of all heads
};

// A warp owns a query of a head.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) attention_sink_forward_kernel(Forward<T> a) {
  const int64_t query = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (query >= a.queries) return;
  const int64_t head = query / a.rows, row = query - head * a.rows;
  const float lse = a.lse[query], sink = to_float(a.sinks[head]), top = fmaxf(lse, sink);
  const float with = top + logf(expf(lse - top) + expf(sink - top)), share = expf(lse - with);
  T* const o = a.o.at(row, head);
  for (int i = static_cast<int>(threadIdx.x % kWarp) * N; i < a.o.D; i += kWarp * N) {
    Pack<T, N> values = load<T, N>(o + i);
    for (int n = 0; n < N; ++n) values.element[n] = from_float<T>(to_float(values.element[n]) * share);
    store<T, N>(o + i, values);
  }
  __syncwarp();  // all lanes have read lse
  if (threadIdx.x % kWarp == 0) a.lse[query] = with;
}

template <class T>
struct Backward {
  float* dsinks;
  Rows<T> gradient, o;
  const float* lse;
  const T* sinks;
  int64_t rows;
  bool accumulate;
};

// A block owns a head.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) attention_sink_backward_kernel(Backward<T> a) {
  __shared__ float sums[kWarps];
  const int64_t head = blockIdx.x;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const float sink = to_float(a.sinks[head]);
  float total = 0;
  for (int64_t row = warp; row < a.rows; row += kWarps) {
    const T *const gradient = a.gradient.at(row, head), *const o = a.o.at(row, head);
    float dot = 0;
    for (int i = lane * N; i < a.o.D; i += kWarp * N) {
      const Pack<T, N> d = load<T, N>(gradient + i), value = load<T, N>(o + i);
      for (int n = 0; n < N; ++n) dot = fmaf(to_float(d.element[n]), to_float(value.element[n]), dot);
    }
    total = fmaf(expf(sink - a.lse[head * a.rows + row]), warp_sum(dot), total);
  }
  if (lane == 0) sums[warp] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float all = 0;
  for (int w = 0; w < kWarps; ++w) all += sums[w];
  a.dsinks[head] = (a.accumulate ? a.dsinks[head] : 0.0f) - all;
}

template <class T>
bool packs(const Heads& heads) {
  return packable<T>(heads.head_size(), heads.at<T>(0, 0)) && heads.stride() % kPackSize<T> == 0;
}

}  // namespace

void attention_sink_forward(Stream& stream, const AttentionSinkForward& a) {
  visit_float(a.o.of.dtype, [&]<class T>() {
    const Forward<T> f{.o = a.o,
                       .lse = a.lse.as<float>(),
                       .sinks = a.sinks.as<T>(),
                       .rows = a.o.rows(),
                       .queries = a.lse.size()};
    const unsigned blocks = blocks_for(f.queries, kWarps);
    if (packs<T>(a.o))
      attention_sink_forward_kernel<T, kPackSize<T>><<<blocks, kThreads, 0, native(stream)>>>(f);
    else
      attention_sink_forward_kernel<T, 1><<<blocks, kThreads, 0, native(stream)>>>(f);
    check_launch(stream, "attention_sink_forward");
  });
}

void attention_sink_backward(Stream& stream, const AttentionSinkBackward& a) {
  visit_float(a.o.of.dtype, [&]<class T>() {
    const Backward<T> b{.dsinks = a.dsinks.as<float>(),
                        .gradient = a.grad_o,
                        .o = a.o,
                        .lse = a.lse.as<float>(),
                        .sinks = a.sinks.as<T>(),
                        .rows = a.o.rows(),
                        .accumulate = a.accumulate};
    const auto heads = static_cast<unsigned>(a.o.count);
    if (packs<T>(a.o) && packs<T>(a.grad_o))
      attention_sink_backward_kernel<T, kPackSize<T>><<<heads, kThreads, 0, native(stream)>>>(b);
    else
      attention_sink_backward_kernel<T, 1><<<heads, kThreads, 0, native(stream)>>>(b);
    check_launch(stream, "attention_sink_backward");
  });
}

}  // namespace flatshard::cuda
