// The embedding on the GPU, with the same bits as on the CPU. The backward pass launches a thread block per
// token. The block of the first occurrence of a token adds the rows of all its occurrences, in order; the
// others exit. Each block scans all tokens, which is cheap compared to the rows, since they stay in the
// caches.

#include "kernels/embedding.h"
#include "kernels/flat.cuh"

namespace flatshard::cuda {
namespace {

template <class T>
struct Gather {
  T* y;
  const T *w, *p;  // p may be null
  const int32_t *tokens, *positions;
  int64_t C, V, P;

  template <int N>
  struct Inputs {
    Pack<T, N> w, p;
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    const int64_t row = i / C, column = i % C;
    const int32_t token = tokens[row];
    require(token >= 0 && token < V);
    Inputs<N> in{};
    in.w = load<T, N>(w + token * C + column);
    if (!p) return in;
    const int32_t position = positions[row];
    require(position >= 0 && position < P);
    in.p = load<T, N>(p + position * C + column);
    return in;
  }
  template <int N>
  __device__ void write(int64_t i, Inputs<N> in) const {
    if (p)
      for (int j = 0; j < N; ++j)
        in.w.element[j] = from_float<T>(to_float(in.w.element[j]) + to_float(in.p.element[j]));
    store<T, N>(y + i, in.w);
  }
};

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPack = kPackSize<float>;  // elements of a table row; a pack of dy may have fewer bytes

// Tokens that a block scans at a time, kLooks per thread.
constexpr int kLooks = 4;
constexpr int kWindow = kLooks * kThreads;

// Bit k of the result tells whether numbers[begin + k kThreads + threadIdx.x] == wanted.
__device__ inline uint32_t look(const int32_t* numbers, int64_t begin, int64_t end, int32_t wanted) {
  uint32_t found = 0;
  for (int k = 0; k < kLooks; ++k) {
    const int64_t m = begin + k * kThreads + threadIdx.x;
    if (m < end && numbers[m] == wanted) found |= 1u << k;
  }
  return found;
}

// Collects the indices of the threads with `found`, in thread order; returns their number.
__device__ inline int list_indices(bool found, int64_t index, int64_t (&indices)[kThreads]) {
  __shared__ int counts[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t mask = __ballot_sync(0xffffffffu, found);
  __syncthreads();  // the previous call may still be reading both arrays
  if (lane == 0) counts[warp] = __popc(mask);
  __syncthreads();
  int before = 0, all = 0;
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) before += counts[i];
    all += counts[i];
  }
  if (found) indices[before + __popc(mask & ((1u << lane) - 1))] = index;
  __syncthreads();
  return all;
}

// table[numbers[n]] += dy[n] for all n with the number of this block, in the columns of its slice.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(float* table, const T* dy, const int32_t* numbers, int64_t size, int64_t table_rows,
                    int64_t C, int64_t slices) {
  __shared__ int64_t indices[kThreads];
  const int64_t n = blockIdx.x / slices;
  const int64_t column = (blockIdx.x % slices * kThreads + threadIdx.x) * N;
  const int32_t number = numbers[n];
  require(number >= 0 && number < table_rows);
  for (int64_t begin = 0; begin < n; begin += kWindow)
    if (__syncthreads_or(static_cast<int>(look(numbers, begin, n, number)))) return;

  float* to = table + number * C + column;
  Pack<float, N> sum{};
  if (column < C) sum = load<float, N>(to);
  for (int64_t begin = n - n % kWarp; begin < size; begin += kWindow) {
    const uint32_t found = look(numbers, begin, size, number);
    if (!__syncthreads_or(static_cast<int>(found))) continue;
    for (int k = 0; k < kLooks; ++k) {
      const int count = list_indices(found >> k & 1u, begin + k * kThreads + threadIdx.x, indices);
      if (column >= C) continue;
#pragma unroll 8
      for (int i = 0; i < count; ++i) {
        const Pack<T, N> row = load<T, N>(dy + indices[i] * C + column);
        for (int j = 0; j < N; ++j) sum.element[j] += to_float(row.element[j]);
      }
    }
  }
  if (column < C) store<float, N>(to, sum);
}

template <class T, int N>
void launch_add_rows(Stream& stream, const Tensor& table, const Tensor& dy, const Tensor& numbers) {
  const int64_t C = dy.shape[-1], slices = (C + kThreads * N - 1) / (kThreads * N);
  add_rows_kernel<T, N><<<static_cast<unsigned>(dy.rows() * slices), kThreads, 0, native(stream)>>>(
      table.as<float>(), dy.as<T>(), numbers.as<int32_t>(), dy.rows(), table.shape[0], C, slices);
  check_launch("embedding_backward");
}

void add_rows(Stream& stream, const Tensor& table, const Tensor& dy, const Tensor& numbers) {
  visit_float(dy.dtype, [&]<class T>() {
    if (packable<T>(dy.shape[-1], table.data, dy.data))
      launch_add_rows<T, kPack>(stream, table, dy, numbers);
    else
      launch_add_rows<T, 1>(stream, table, dy, numbers);
  });
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForward& a) {
  visit_float(a.y.dtype, [&]<class T>() {
    const bool with_positions = !a.p.empty();
    const Gather<T> op{.y = a.y.as<T>(),
                       .w = a.w.as<T>(),
                       .p = with_positions ? a.p.as<T>() : nullptr,
                       .tokens = a.tokens.as<int32_t>(),
                       .positions = with_positions ? a.positions.as<int32_t>() : nullptr,
                       .C = a.y.shape[-1],
                       .V = a.w.shape[0],
                       .P = with_positions ? a.p.shape[0] : 0};
    launch_flat<kPackSize<T>>(stream, "embedding_forward", op, a.y.size(),
                              packable<T>(op.C, op.y, op.w, op.p));
  });
}

void embedding_backward(Stream& stream, const EmbeddingBackward& a) {
  if (!a.dw.empty()) add_rows(stream, a.dw, a.dy, a.tokens);
  if (!a.dp.empty()) add_rows(stream, a.dp, a.dy, a.positions);
}

}  // namespace flatshard::cuda
