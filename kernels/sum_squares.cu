// The gradient norm on the GPU, with the same bits as on the CPU: a warp sums an interval over the same
// kSquaresLanes lanes by the same tree, a thread block a group of partials, and one warp adds the groups.
//
// Memory bandwidth limits the sums of intervals: for f32, a lane has up to 8 loads of 16 bytes in flight and
// 40 registers, so the 1536 threads of an SM have 192 KiB in flight. Latency limits the sums of partials (31
// registers, 2 KiB of shared memory): for 8 billion parameters they take an estimated 8 us in all.

#include <algorithm>

#include "kernels/cuda_util.cuh"
#include "kernels/sum_squares.h"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// Lane k of an interval sums elements k, k + kSquaresLanes, ...; a thread handles kPacks packs of N lanes,
// kWarp packs apart.
template <int N>
struct Lanes {
  static constexpr int kPacks = static_cast<int>(kSquaresLanes) / (kWarp * N);
  Pack<float, N> pack[kPacks];

  __device__ static int64_t first(int k) { return (k * kWarp + threadIdx.x % kWarp) * N; }
  // Adds halves of the lanes until one is left: first packs, then threads, then elements of a pack.
  __device__ float sum() {
    for (int half = kPacks / 2; half > 0; half /= 2)
      for (int k = 0; k < half; ++k)
        for (int j = 0; j < N; ++j) pack[k].element[j] += pack[k + half].element[j];
    for (int j = 0; j < N; ++j) pack[0].element[j] = warp_sum(pack[0].element[j]);
    for (int half = N / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) pack[0].element[j] += pack[0].element[j + half];
    return pack[0].element[0];
  }
};

template <class T, int N>
__device__ inline float interval_squares(const T* x, int64_t n) {
  Lanes<N> lanes{};
  const int64_t whole = n - n % kSquaresLanes;
#pragma unroll 4
  for (int64_t i = 0; i < whole; i += kSquaresLanes)
    for (int k = 0; k < lanes.kPacks; ++k) {
      const Pack<T, N> v = load<T, N>(x + i + lanes.first(k));
      for (int j = 0; j < N; ++j) {
        float& sum = lanes.pack[k].element[j];
        sum = fmaf(to_float(v.element[j]), to_float(v.element[j]), sum);
      }
    }
  for (int k = 0; k < lanes.kPacks; ++k)
    for (int j = 0; j < N; ++j) {
      const int64_t i = whole + lanes.first(k) + j;
      if (i >= n) continue;
      float& sum = lanes.pack[k].element[j];
      sum = fmaf(to_float(x[i]), to_float(x[i]), sum);
    }
  return lanes.sum();
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(float* partials, const T* x, int64_t first, int64_t size, int64_t intervals) {
  const int64_t interval = blockIdx.x * static_cast<int64_t>(kWarps) + threadIdx.x / kWarp;
  if (interval >= intervals) return;
  // interval_begin and begin are indices into x; the first interval may start before x, the last may end
  // after it.
  const int64_t interval_begin = (first / kSquaresInterval + interval) * kSquaresInterval - first;
  const int64_t begin = interval_begin > 0 ? interval_begin : 0;
  const int64_t end = interval_begin + kSquaresInterval < size ? interval_begin + kSquaresInterval : size;
  const float squares = interval_squares<T, N>(x + begin, end - begin);
  if (threadIdx.x % kWarp == 0) partials[interval] = squares;
}

constexpr int kUnits = 256;  // most units in one launch

// The units of parameters of a launch, in which each thread block adds one group of one unit. It is a kernel
// argument, so it needs no device memory.
struct Units {
  int32_t first_group[kUnits + 1];  // number of groups of the launch before each unit
  int32_t intervals[kUnits];        // intervals of each unit on a rank
  int64_t first_interval[kUnits];   // first interval of each unit among all intervals of a rank
};

__global__ void __launch_bounds__(kThreads)
    group_kernel(int32_t* sums, const float* partials, int64_t n, int ranks, int count,
                 const __grid_constant__ Units units) {
  static_assert(kThreads == kUnits && kThreads == kSquaresLanes);
  __shared__ int found;
  __shared__ double lanes[kThreads];
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  if (thread < count && units.first_group[thread] <= block && block < units.first_group[thread + 1])
    found = thread;
  __syncthreads();
  const int unit = units.intervals[found];
  const int begin = (block - units.first_group[found]) * static_cast<int>(kPartialsPerSum),
            end = unit * ranks;
  partials += units.first_interval[found];
  double sum = 0.0;
#pragma unroll
  for (int k = 0; k < kPartialsPerSum / kThreads; ++k) {
    const int c = begin + k * kThreads + thread;
    if (c < end) sum += static_cast<double>(partials[c / unit * n + c % unit]);
  }
  lanes[thread] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) lanes[thread] += lanes[thread + half];
  }
  if (thread > 0) return;
  sums[2 * block] = __double2loint(lanes[0]);
  sums[2 * block + 1] = __double2hiint(lanes[0]);
}

struct ClipPointers {
  float *norm, *coefficient;
  int32_t* nonfinite;
  const int32_t* sums;
};

// Additions depend on each other, loads do not: the lanes load in parallel, and each adds all values.
__global__ void __launch_bounds__(kWarp) clip_kernel(ClipPointers p, int64_t n, float max_norm, float scale) {
  constexpr int kLoads = 8;
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kWarp * kLoads) {
    double part[kLoads];
    for (int k = 0; k < kLoads; ++k) {
      const int64_t i = begin + k * kWarp + threadIdx.x;
      part[k] = i < n ? __hiloint2double(p.sums[2 * i + 1], p.sums[2 * i]) : 0.0;
    }
    for (int k = 0; k < kLoads; ++k)
      for (int lane = 0; lane < kWarp; ++lane) total += __shfl_sync(0xffffffffu, part[k], lane);
  }
  if (threadIdx.x != 0) return;
  const float norm = static_cast<float>(static_cast<double>(scale) * sqrt(total));
  const float ratio = max_norm / (norm + 1e-6f);
  *p.norm = norm;
  *p.coefficient = scale * (ratio >= 1.0f ? 1.0f : ratio);  // NaN stays NaN
  *p.nonfinite = isfinite(norm) ? 0 : 1;
}

template <class T, int N>
void launch_squares(Stream& stream, const SumSquares& a) {
  const int64_t intervals = a.partials.size();
  squares_kernel<T, N><<<blocks_for(intervals, kWarps), kThreads, 0, native(stream)>>>(
      a.partials.as<float>(), a.x.as<T>(), a.first, a.x.size(), intervals);
  check_launch(stream, "sum_squares");
}

}  // namespace

void sum_squares(Stream& stream, const SumSquares& a) {
  visit_float(a.x.dtype, [&]<class T>() {
    if (packable<T>(a.first, a.x.data))
      launch_squares<T, kPackSize<T>>(stream, a);
    else
      launch_squares<T, 1>(stream, a);
  });
}

void sum_partials(Stream& stream, const SumPartials& a) {
  const int64_t ranks = a.partials.shape[0], n = a.partials.shape[1];
  int32_t* const sums = a.sums.as<int32_t>();
  int64_t first_interval = 0, first_group = 0;
  for (size_t from = 0; from < a.units.size(); from += kUnits) {
    Units units{};
    const size_t count = std::min<size_t>(kUnits, a.units.size() - from);
    int64_t blocks = 0;
    for (size_t i = 0; i < count; ++i) {
      const int64_t intervals = a.units[from + i];
      units.intervals[i] = static_cast<int32_t>(intervals);
      units.first_interval[i] = first_interval;
      first_interval += intervals;
      blocks += sums_of_partials(ranks, {&intervals, 1});
      units.first_group[i + 1] = static_cast<int32_t>(blocks);
    }
    if (blocks == 0) continue;
    group_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, native(stream)>>>(
        sums + 2 * first_group, a.partials.as<float>(), n, static_cast<int>(ranks), static_cast<int>(count),
        units);
    check_launch(stream, "sum_partials");
    first_group += blocks;
  }
}

void clip_coefficient(Stream& stream, const ClipCoefficient& a) {
  const ClipPointers p{a.norm.as<float>(), a.coefficient.as<float>(), a.nonfinite.as<int32_t>(),
                       a.sums.as<int32_t>()};
  clip_kernel<<<1, kWarp, 0, native(stream)>>>(p, a.sums.shape[0], a.max_norm, a.scale);
  check_launch(stream, "clip_coefficient");
}

}  // namespace flatshard::cuda
