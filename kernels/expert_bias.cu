// Biases of experts on the GPU. Segments begin at multiples of kSegmentRows, so that a block of that many
// rows has one expert.

#include "kernels/cuda_util.cuh"
#include "kernels/expert_bias.h"
#include "kernels/grouped_product.h"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

template <class T>
struct Add {
  T* x;
  const T* bias;
  const int32_t *offsets, *rows;
  int C, E;
};

// The expert whose segment has a row; E behind the last segment.
__device__ int expert_at(const int32_t* offsets, int E, int row) {
  int first = 0, last = E;
  while (first < last) {  // the first expert whose segment ends behind the row
    const int middle = (first + last) / 2;
    if (offsets[middle + 1] > row)
      last = middle;
    else
      first = middle + 1;
  }
  return first;
}

// A block owns kSegmentRows rows.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) add_expert_bias_kernel(Add<T> a) {
  const int begin = static_cast<int>(blockIdx.x * kSegmentRows);
  const int expert = expert_at(a.offsets, a.E, begin);
  if (expert == a.E) return;
  const T* const bias = a.bias + static_cast<int64_t>(expert) * a.C;
  for (int row = begin + static_cast<int>(threadIdx.x) / kWarp; row < begin + kSegmentRows; row += kWarps) {
    if (a.rows[row] < 0) continue;
    T* const x = a.x + static_cast<int64_t>(row) * a.C;
    for (int c = static_cast<int>(threadIdx.x % kWarp) * N; c < a.C; c += kWarp * N) {
      Pack<T, N> values = load<T, N>(x + c);
      const Pack<T, N> more = load<T, N>(bias + c);
      for (int n = 0; n < N; ++n)
        values.element[n] = from_float<T>(to_float(values.element[n]) + to_float(more.element[n]));
      store<T, N>(x + c, values);
    }
  }
}

template <class T>
struct Backward {
  float *dbias, *dweights;
  const T *dx, *bias;
  const float* weights;  // null: 1
  const int32_t *places, *experts, *offsets, *rows;
  int64_t choices, C;
  int k;
  bool accumulate;
};

// The weight of a row: that of the choice of its token which is at this place.
template <class T>
__device__ float weight_of(const Backward<T>& b, int row, int64_t token) {
  if (!b.weights) return 1;
  int64_t choice = token * b.k;
  while (b.places[choice] != row) ++choice;
  return b.weights[choice];
}

// A block owns 32 columns of an expert: each warp adds up every eighth row, and the first one adds these
// sums.
template <class T>
__global__ void __launch_bounds__(kThreads) expert_bias_sums_kernel(Backward<T> b) {
  __shared__ float sums[kWarps][kWarp];
  const int expert = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = int64_t{blockIdx.x} * kWarp + lane;
  const int end = b.offsets[expert + 1];
  float sum = 0;
  for (int row = b.offsets[expert] + warp; row < end; row += kWarps) {
    const int token = b.rows[row];
    if (token < 0) continue;
    const float weight = weight_of(b, row, token);
    if (column < b.C) sum = fmaf(weight, to_float(b.dx[row * b.C + column]), sum);
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= b.C) return;
  float all = 0;
  for (int w = 0; w < kWarps; ++w) all += sums[w][lane];
  float& dbias = b.dbias[expert * b.C + column];
  dbias = (b.accumulate ? dbias : 0.0f) + all;
}

// A warp owns a choice.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) expert_bias_weights_kernel(Backward<T> b) {
  const int64_t choice = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (choice >= b.choices || b.places[choice] < 0) return;
  const T *const dx = b.dx + b.places[choice] * b.C, *const bias = b.bias + b.experts[choice] * b.C;
  float dot = 0;
  for (int64_t c = int64_t{threadIdx.x % kWarp} * N; c < b.C; c += kWarp * N) {
    const Pack<T, N> gradient = load<T, N>(dx + c), value = load<T, N>(bias + c);
    for (int n = 0; n < N; ++n) dot = fmaf(to_float(gradient.element[n]), to_float(value.element[n]), dot);
  }
  dot = warp_sum(dot);
  if (threadIdx.x % kWarp == 0) b.dweights[choice] += dot;
}

}  // namespace

void add_expert_bias(Stream& stream, const AddExpertBias& a) {
  visit_float(a.x.dtype, [&]<class T>() {
    const Add<T> add{.x = a.x.as<T>(),
                     .bias = a.bias.as<T>(),
                     .offsets = a.offsets.as<int32_t>(),
                     .rows = a.rows.as<int32_t>(),

                     .C = static_cast<int>(a.x.shape[1]),
                     .E = static_cast<int>(a.offsets.size() - 1)};
    const unsigned blocks = blocks_for(a.x.shape[0], kSegmentRows);
    if (packable<T>(add.C, add.x, add.bias))
      add_expert_bias_kernel<T, kPackSize<T>><<<blocks, kThreads, 0, native(stream)>>>(add);
    else
      add_expert_bias_kernel<T, 1><<<blocks, kThreads, 0, native(stream)>>>(add);
    check_launch(stream, "add_expert_bias");
  });
}

void expert_bias_backward(Stream& stream, const ExpertBiasBackward& a) {
  visit_float(a.dx.dtype, [&]<class T>() {
    const Backward<T> b{.dbias = a.dbias.as<float>(),
                        .dweights = a.dweights.as<float>(),
                        .dx = a.dx.as<T>(),
                        .bias = a.bias.empty() ? nullptr : a.bias.as<T>(),
                        .weights = a.weights.empty() ? nullptr : a.weights.as<float>(),
                        .places = a.places.empty() ? nullptr : a.places.as<int32_t>(),
                        .experts = a.experts.empty() ? nullptr : a.experts.as<int32_t>(),
                        .offsets = a.offsets.as<int32_t>(),
                        .rows = a.rows.as<int32_t>(),
                        .choices = a.dweights.size(),
                        .C = a.dx.shape[1],
                        .k = a.places.empty() ? 0 : static_cast<int>(a.places.shape[1]),
                        .accumulate = a.accumulate};
    if (!a.dbias.empty()) {
      const dim3 grid(blocks_for(b.C, kWarp), static_cast<unsigned>(a.offsets.size() - 1));
      expert_bias_sums_kernel<T><<<grid, kThreads, 0, native(stream)>>>(b);
      check_launch(stream, "expert_bias_sums");
    }
    if (a.dweights.empty()) return;
    const unsigned blocks = blocks_for(b.choices, kWarps);
    if (packable<T>(b.C, b.dx, b.bias))
      expert_bias_weights_kernel<T, kPackSize<T>><<<blocks, kThreads, 0, native(stream)>>>(b);
    else
      expert_bias_weights_kernel<T, 1><<<blocks, kThreads, 0, native(stream)>>>(b);
    check_launch(stream, "expert_bias_weights");
  });
}

}  // namespace flatshard::cuda
