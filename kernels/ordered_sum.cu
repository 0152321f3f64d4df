// The sum over lanes on the GPU, with the same bits as on the CPU: each thread adds the lanes of its elements
// by the same tree.
//
// Memory bandwidth limits it. A thread sums two packs of 4 elements (flat.cuh), with at most 32 registers for
// 16 lanes. A number of lanes that is not a power of two up to 64 is added eight lanes at a time, in 80
// registers: 768 threads, with 48 KiB of bf16 in flight.

#include "kernels/flat.cuh"
#include "kernels/ordered_sum.h"

namespace flatshard::cuda {
namespace {

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

// The tree over any number of lanes, in groups of kGroup, as a binary counter: bit k of the number of groups
// processed tells whether a sum of 2^k groups is pending. Every index is a constant once loops are unrolled,
// so the sums stay in registers. A pack counts up to kMostOfPack lanes, a single element up to 2^31.
constexpr int kGroup = 8, kMostOfPack = 127;

template <int N, class T>
__device__ inline Pack<float, N> any_tree(const T* p, int64_t L, int64_t stride) {
  constexpr int kLevels = N > 1 ? 4 : 29;
  static_assert(kMostOfPack / kGroup < 1 << 4);
  Pack<float, N> pending[kLevels];
  const int groups = static_cast<int>(L / kGroup), rest = static_cast<int>(L % kGroup);
#pragma unroll 1
  for (int group = 0; group < groups; ++group, p += kGroup * stride) {
    Pack<float, N> sum = full_tree<kGroup, N>(p, stride);
    bool carries = true;
#pragma unroll
    for (int k = 0; k < kLevels; ++k) {
      if (!carries) continue;
      carries = group >> k & 1;
      if (carries)
        sum = pending[k] + sum;
      else
        pending[k] = sum;
    }
  }
  Pack<float, N> sum;
  bool empty = true;
  const auto add_to = [&](const Pack<float, N>& larger) {
    sum = empty ? larger : larger + sum;
    empty = false;
  };
  if (rest & 1) add_to(full_tree<1, N>(p + (rest & 6) * stride, stride));
  if (rest & 2) add_to(full_tree<2, N>(p + (rest & 4) * stride, stride));
  if (rest & 4) add_to(full_tree<4, N>(p, stride));
#pragma unroll
  for (int k = 0; k < kLevels; ++k)
    if (groups >> k & 1) add_to(pending[k]);
  return sum;
}

// kLanes is the number of lanes if it is a power of two up to 64, else 0.
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

// Single elements are added by the kernel for any number of lanes: buffers of gradients are aligned for
// packs.
template <class T, int kLanes = 64>
void launch(Stream& stream, const OrderedSum& a) {
  const int64_t size = a.y.size(), L = a.lanes.shape[0];
  if constexpr (kLanes > 0)
    if (L != kLanes) return launch<T, kLanes / 2>(stream, a);
  const auto op = [&]<int kSummed>() {
    return SumLanes<kSummed, T>{a.y.as<float>(), a.lanes.as<T>(), L, size, a.accumulate};
  };
  if (packable<T>(L > 1 ? size : 0, a.lanes.data) && packable<float>(0, a.y.data) &&
      (kLanes > 0 || L <= kMostOfPack))
    launch_packs<kPackSize<float>>(stream, "ordered_sum", op.template operator()<kLanes>(), size);
  else
    launch_packs<1>(stream, "ordered_sum", op.template operator()<0>(), size);
}

}  // namespace

void ordered_sum(Stream& stream, const OrderedSum& a) {
  visit_float(a.lanes.dtype, [&]<class T>() { launch<T>(stream, a); });
}

}  // namespace flatshard::cuda
