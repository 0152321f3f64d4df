// The embedding on the GPU, with the same bits as on the CPU. The backward pass sorts the tokens and launches
// a warp for each position in the sorted order and each slice of 128 columns. The warp at the first position
// of a token adds the rows of all its occurrences, in order; the other warps exit.
//
// Memory bandwidth limits both passes, unless the additions of one frequent token take longer. In the forward
// pass, the 4 bytes of an element take at most 19 instructions of a budget of 25 (flat.cuh), with 46
// registers. In the backward pass, 32 warps of 56 registers have 16 rows each of a frequent token in flight.

#include "kernels/embedding.h"
#include "kernels/flat.cuh"
#include "kernels/index_sort.cuh"

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
constexpr int kPack = kPackSize<float>;  // table elements in a pack; a pack of dy may have fewer bytes

// Rows of a frequent number that a warp loads before it adds them, so that the loads overlap.
template <class T>
constexpr int kRowsInFlight = 32 / sizeof(T);

// table[numbers[i]] += dy[indices[i]], in the columns of the warp's slice, for all i whose number is the one
// at this warp's place in the sorted order, if that place is the number's first.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(float* table, const T* dy, Indexed sorted, int size, int64_t C, int slices) {
  const int64_t warp = blockIdx.x * static_cast<int64_t>(kWarps) + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(warp / slices);
  if (first >= size) return;
  const int32_t number = sorted.numbers[first];
  if (first > 0 && sorted.numbers[first - 1] == number) return;
  const int64_t column = (warp % slices * kWarp + lane) * N;
  const bool has_columns = column < C;
  float* to = table + number * C + column;
  Pack<float, N> sum{};
  if (has_columns) sum = load<float, N>(to);
  for (int begin = first, count = kWarp; count == kWarp; begin += kWarp) {
    const int place = begin + lane;
    const bool same = place < size && sorted.numbers[place] == number;
    const int index = same ? sorted.indices[place] : 0;
    count = __popc(__ballot_sync(0xffffffffu, same));  // a number's places are adjacent
    const auto row_of = [&](int i) { return dy + int64_t{__shfl_sync(0xffffffffu, index, i)} * C + column; };
    int i = 0;
    for (; i + kRowsInFlight<T> <= count; i += kRowsInFlight<T>) {
      Pack<T, N> rows[kRowsInFlight<T>];
#pragma unroll
      for (int k = 0; k < kRowsInFlight<T>; ++k) {
        const T* row = row_of(i + k);
        rows[k] = has_columns ? load<T, N>(row) : Pack<T, N>{};
      }
#pragma unroll
      for (int k = 0; k < kRowsInFlight<T>; ++k)
        for (int j = 0; j < N; ++j) sum.element[j] += to_float(rows[k].element[j]);
    }
    for (; i < count; ++i) {
      const T* row = row_of(i);
      if (!has_columns) continue;
      const Pack<T, N> last = load<T, N>(row);
      for (int j = 0; j < N; ++j) sum.element[j] += to_float(last.element[j]);
    }
  }
  if (has_columns) store<float, N>(to, sum);
}

template <class T, int N>
void launch_add_rows(Stream& stream, const Tensor& table, const Tensor& dy, const Indexed& sorted) {
  const int64_t C = dy.shape[-1], slices = (C + kWarp * N - 1) / (kWarp * N), warps = dy.rows() * slices;
  add_rows_kernel<T, N><<<blocks_for(warps, kWarps), kThreads, 0, native(stream)>>>(
      table.as<float>(), dy.as<T>(), sorted, static_cast<int>(dy.rows()), C, static_cast<int>(slices));
  check_launch(stream, "embedding_backward");
}

void add_rows(Stream& stream, const Tensor& table, const Tensor& dy, const Tensor& numbers,
              int32_t* scratch) {
  if (table.empty()) return;
  const Indexed sorted = sort_indices(stream, numbers.as<int32_t>(), dy.rows(), table.shape[0], scratch);
  visit_float(dy.dtype, [&]<class T>() {
    if (packable<T>(dy.shape[-1], table.data, dy.data))
      launch_add_rows<T, kPack>(stream, table, dy, sorted);
    else
      launch_add_rows<T, 1>(stream, table, dy, sorted);
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

void embedding_backward(Stream& stream, const EmbeddingBackward& a, const Tensor& sort) {
  add_rows(stream, a.dw, a.dy, a.tokens, sort.as<int32_t>());
  add_rows(stream, a.dp, a.dy, a.positions, sort.as<int32_t>());
}

}  // namespace flatshard::cuda
