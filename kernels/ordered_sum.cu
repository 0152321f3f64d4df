// The sum over lanes on the GPU, with the same bits as on the CPU: each thread adds the lanes of its elements
// by the same tree.
//
// Memory bandwidth limits it. A thread sums two packs of 4 elements (flat.cuh) with one load from each lane:
// for four lanes of bf16 that is 64 bytes in flight and 29 registers, so all 2048 threads of an SM are
// resident. Other numbers of lanes than 1, 2, 4 and 8 keep 640 bytes of pending sums in local memory.

#include "kernels/flat.cuh"
#include "kernels/ordered_sum.h"

namespace flatshard::cuda {
namespace {

constexpr int kMaxLevels = 32;

template <int N>
__device__ inline Pack<float, N> operator+(Pack<float, N> a, const Pack<float, N>& b) {
  for (int j = 0; j < N; ++j) a.element[j] += b.element[j];
  return a;
}

template <class T, int N>
__device__ inline Pack<float, N> load_floats(const T* p) {
  const Pack<T, N> v = load<T, N>(p);
  Pack<float, N> floats;
  for (int j = 0; j < N; ++j) floats.element[j] = to_float(v.element[j]);
  return floats;
}

// The tree over L lanes, L a power of two, `stride` elements apart.
template <int L, int N, class T>
__device__ inline Pack<float, N> full_tree(const T* p, int64_t stride) {
  if constexpr (L == 1)
    return load_floats<T, N>(p);
  else
    return full_tree<L / 2, N>(p, stride) + full_tree<L / 2, N>(p + L / 2 * stride, stride);
}

// The tree over any number of lanes as a binary counter: bit k of the number of lanes processed tells whether
// a sum of 2^k lanes is pending.
template <int N, class T>
__device__ inline Pack<float, N> any_tree(const T* p, int64_t L, int64_t stride) {
  Pack<float, N> waiting[kMaxLevels];
  int top = 0;
  for (int64_t lane = 0; lane < L; ++lane) {
    Pack<float, N> sum = load_floats<T, N>(p + lane * stride);
    for (int64_t carry = lane; carry & 1; carry >>= 1) sum = waiting[--top] + sum;
    waiting[top++] = sum;
  }
  Pack<float, N> sum = waiting[--top];
  while (top > 0) sum = waiting[--top] + sum;
  return sum;
}

// kLanes is the number of lanes if it is a small power of two, else 0.
template <int kLanes, class T>
struct SumLanes {
  float* y;
  const T* lanes;
  int64_t L, size;
  bool accumulate;

  template <int N>
  __device__ Pack<float, N> read(int64_t i) const {
    Pack<float, N> sum;
    if constexpr (kLanes == 0)
      sum = any_tree<N>(lanes + i, L, size);
    else
      sum = full_tree<kLanes, N>(lanes + i, size);
    return accumulate ? load<float, N>(y + i) + sum : sum;
  }
  template <int N>
  __device__ void write(int64_t i, const Pack<float, N>& sum) const {
    store<float, N>(y + i, sum);
  }
};

template <int kLanes, class T>
void launch(Stream& stream, const OrderedSum& a) {
  const int64_t size = a.y.size();
  const SumLanes<kLanes, T> op{a.y.as<float>(), a.lanes.as<T>(), a.lanes.shape[0], size, a.accumulate};
  const bool lanes_aligned = packable<T>(op.L > 1 ? size : 0, op.lanes);
  launch_flat<kPackSize<float>>(stream, "ordered_sum", op, size, lanes_aligned && packable<float>(0, op.y));
}

}  // namespace

void ordered_sum(Stream& stream, const OrderedSum& a) {
  visit_float(a.lanes.dtype, [&]<class T>() {
    switch (a.lanes.shape[0]) {
      case 1:
        return launch<1, T>(stream, a);
      case 2:
        return launch<2, T>(stream, a);
      case 4:
        return launch<4, T>(stream, a);
      case 8:
        return launch<8, T>(stream, a);
      default:
        return launch<0, T>(stream, a);
    }
  });
}

}  // namespace flatshard::cuda
