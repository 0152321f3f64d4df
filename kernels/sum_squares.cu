// The gradient norm on the GPU, with the same bits as on the CPU: a warp sums a chunk over the same
// kSquaresLanes lanes by the same tree, and one warp adds all partials in order.

#include "kernels/cuda_util.cuh"
#include "kernels/sum_squares.h"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// Lane k of a chunk sums elements k, k + kSquaresLanes, ...; a thread handles kPacks packs of N lanes, kWarp
// packs apart.
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
__device__ inline float chunk_squares(const T* x, int64_t n) {
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
    squares_kernel(float* partials, const T* x, int64_t first, int64_t size, int64_t chunks) {
  const int64_t chunk = blockIdx.x * static_cast<int64_t>(kWarps) + threadIdx.x / kWarp;
  if (chunk >= chunks) return;
  // Both are indices into x; the first chunk may start before x, the last may end after it.
  const int64_t chunk_begin = (first / kSquaresChunk + chunk) * kSquaresChunk - first;
  const int64_t begin = chunk_begin > 0 ? chunk_begin : 0;
  const int64_t end = chunk_begin + kSquaresChunk < size ? chunk_begin + kSquaresChunk : size;
  const float squares = chunk_squares<T, N>(x + begin, end - begin);
  if (threadIdx.x % kWarp == 0) partials[chunk] = squares;
}

struct ClipPointers {
  float *norm, *coefficient;
  int32_t* nonfinite;
  const float* partials;
};

// Additions depend on each other, loads and conversions do not: the lanes load in parallel, and each adds all
// values.
__global__ void __launch_bounds__(kWarp) clip_kernel(ClipPointers p, int64_t n, float max_norm, float scale) {
  constexpr int kLoads = 8;
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kWarp * kLoads) {
    float part[kLoads];
    for (int k = 0; k < kLoads; ++k) {
      const int64_t i = begin + k * kWarp + threadIdx.x;
      part[k] = i < n ? p.partials[i] : 0.0f;
    }
    for (int k = 0; k < kLoads; ++k)
      for (int lane = 0; lane < kWarp; ++lane)
        total += static_cast<double>(__shfl_sync(0xffffffffu, part[k], lane));
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
  const int64_t chunks = a.partials.size();
  squares_kernel<T, N>
      <<<static_cast<unsigned>((chunks + kWarps - 1) / kWarps), kThreads, 0, native(stream)>>>(
          a.partials.as<float>(), a.x.as<T>(), a.first, a.x.size(), chunks);
  check_launch("sum_squares");
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

void clip_coefficient(Stream& stream, const ClipCoefficient& a) {
  const ClipPointers p{a.norm.as<float>(), a.coefficient.as<float>(), a.nonfinite.as<int32_t>(),
                       a.partials.as<float>()};
  clip_kernel<<<1, kWarp, 0, native(stream)>>>(p, a.partials.size(), a.max_norm, a.scale);
  check_launch("clip_coefficient");
}

}  // namespace flatshard::cuda
