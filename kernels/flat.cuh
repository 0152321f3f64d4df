#pragma once
// The kernel of elementwise ops. An op defines how N elements from i on are read and written. Each thread
// reads all of its inputs before it writes, which keeps several loads in flight and allows in-place outputs:
//   template <class T>
//   struct Negate {
//     T* y;
//     const T* x;
//     template <int N>
//     __device__ Pack<T, N> read(int64_t i) const { return load<T, N>(x + i); }
//     template <int N>
//     __device__ void write(int64_t i, const Pack<T, N>& in) const { ... store<T, N>(y + i, out); }
//   };
//   launch_flat<kPackSize<T>>(stream, "negate", Negate<T>{y, x}, size, packable<T>(0, y, x));
//
// A thread processes two packs. The kernel uses no shared memory, so registers determine occupancy: an SM
// runs 2048 threads with up to 32 registers each, 1536 with 40, 1280 with 48, 1024 with 64, 768 with 72. An
// H200 needs 29 KiB of loads in flight per SM (rmsnorm.cu). Its instruction budget is 6.4 per byte: an SM
// issues 128 thread instructions a clock at 1.83 GHz, and 132 SMs share 4.8 TB/s. Memory bandwidth limits an
// op within the budget. The files of the ops state these figures for bf16 on sm_90, with the instructions
// counted in the machine code.

#include "kernels/cuda_util.cuh"
#include "runtime/tensor.h"

namespace flatshard::cuda {

inline constexpr int kFlatThreads = 256;
inline constexpr int kFlatPacks = 2;  // packs per thread

// The loops are always unrolled: otherwise the compiler stores the elements of a pack one by one.
template <int N, class Op>
__global__ void __launch_bounds__(kFlatThreads) flat_kernel(Op op, int64_t size) {
  constexpr int64_t kStride = static_cast<int64_t>(kFlatThreads) * N;
  const int64_t begin = blockIdx.x * kStride * kFlatPacks + static_cast<int64_t>(threadIdx.x) * N;
  decltype(op.template read<N>(0)) in[kFlatPacks];
#pragma unroll
  for (int k = 0; k < kFlatPacks; ++k)
    if (begin + k * kStride + N <= size) in[k] = op.template read<N>(begin + k * kStride);
#pragma unroll
  for (int k = 0; k < kFlatPacks; ++k)
    if (begin + k * kStride + N <= size) op.template write<N>(begin + k * kStride, in[k]);
  const int64_t tail = size - size % N;
  if (blockIdx.x == 0 && threadIdx.x < size - tail)
    op.template write<1>(tail + threadIdx.x, op.template read<1>(tail + threadIdx.x));
}

// Processes packs of N elements.
template <int N, class Op>
void launch_packs(Stream& stream, const char* name, const Op& op, int64_t size) {
  constexpr int64_t kBlock = int64_t{kFlatThreads} * kFlatPacks * N;
  flat_kernel<N><<<blocks_for(size, kBlock), kFlatThreads, 0, native(stream)>>>(op, size);
  check_launch(stream, name);
}

// Processes packs of N elements if `packable`, single elements otherwise.
template <int N, class Op>
void launch_flat(Stream& stream, const char* name, const Op& op, int64_t size, bool packable) {
  packable ? launch_packs<N>(stream, name, op, size) : launch_packs<1>(stream, name, op, size);
}

// y[i] = f(x[i]...), where f is a function of floats on the device.
template <class T, class F, int kInputs>
struct Map {
  T* y;
  const T* x[kInputs];
  F f;

  template <int N>
  struct Inputs {
    Pack<T, N> x[kInputs];
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    Inputs<N> in;
    for (int k = 0; k < kInputs; ++k) in.x[k] = load<T, N>(x[k] + i);
    return in;
  }
  template <int N>
  __device__ void write(int64_t i, const Inputs<N>& in) const {
    Pack<T, N> out;
    for (int j = 0; j < N; ++j)
      if constexpr (kInputs == 1)
        out.element[j] = from_float<T>(f(to_float(in.x[0].element[j])));
      else
        out.element[j] = from_float<T>(f(to_float(in.x[0].element[j]), to_float(in.x[1].element[j])));
    store<T, N>(y + i, out);
  }
};

template <class F, class... Inputs>
void launch_map(Stream& stream, const char* name, const F& f, const Tensor& y, const Inputs&... x) {
  visit_float(y.dtype, [&]<class T>() {
    const Map<T, F, sizeof...(Inputs)> op{y.as<T>(), {x.template as<T>()...}, f};
    launch_flat<kPackSize<T>>(stream, name, op, y.size(), packable<T>(0, y.data, x.data...));
  });
}

}  // namespace flatshard::cuda
