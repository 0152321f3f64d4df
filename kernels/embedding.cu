// The embedding on the GPU, with the same bits as on the CPU. The backward pass sorts the tokens and launches
// a warp for each position in the sorted order and each slice of 128 columns. The warp at the first position
// of a token adds the rows of all its occurrences, in order; the other warps exit. A frequent token has a
// thread block for each slice of 128 bytes instead: all its threads copy rows to shared memory, several
// stages ahead, and a thread for each column adds them, in the same order.
//
// Memory bandwidth limits both passes, unless the additions of one frequent token take longer: each waits for
// the one before, for 4 cycles and more. In the forward pass, the 4 bytes of an element take at most 19
// instructions of a budget of 25 (flat.cuh), with 46 registers.

#include "kernels/embedding.h"
#include "kernels/flat.cuh"
#include "kernels/index_sort.cuh"
#include "kernels/tensor_core.cuh"

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

// Rows of a number that a warp loads before it adds them, so that the loads overlap.
template <class T>
constexpr int kRowsInFlight = 32 / sizeof(T);

// A number is frequent if it has all places of a window: of kWindow places, the first a multiple of kWindow.
constexpr int kWindow = 64;
__device__ bool has_window(const Indexed& sorted, int size, int begin, int32_t number) {
  return begin + kWindow <= size && sorted.numbers[begin] == number &&
         sorted.numbers[begin + kWindow - 1] == number;
}

// table[numbers[i]] += dy[indices[i]], in the columns of the warp's slice, for all i whose number is the one
// at this warp's place in the sorted order, if that place is the number's first. With packs (N > 1), frequent
// numbers are left to add_frequent_kernel.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(float* table, const T* dy, Indexed sorted, int size, int64_t C, int slices) {
  const int64_t warp = blockIdx.x * static_cast<int64_t>(kWarps) + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(warp / slices);
  if (first >= size) return;
  const int32_t number = sorted.numbers[first];
  if (first > 0 && sorted.numbers[first - 1] == number) return;
  const int next_window = (first + kWindow - 1) / kWindow * kWindow;
  if (N > 1 && has_window(sorted, size, next_window, number)) return;
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

constexpr int kChunks = 8;  // chunks of 16 bytes that a slice has of each row

// The same for the frequent number whose first window this block has, in a slice of columns. The places of a
// stage of kWindow rows are found before its copies start, and these run kStages - 1 stages ahead of the sum.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_frequent_kernel(float* table, const T* dy, Indexed sorted, int size, int64_t C) {
  constexpr int kStages = 5;
  constexpr int kColumns = kChunks * kPackSize<T>;
  static_assert(kWindow == 2 * kWarp && kThreads == kWarp * kChunks && kColumns <= kThreads);
  __shared__ uint4 stages[kStages][kWindow][kChunks];
  const int window = static_cast<int>(blockIdx.x) * kWindow, thread = static_cast<int>(threadIdx.x);
  const int32_t number = sorted.numbers[window];
  if (!has_window(sorted, size, window, number)) return;
  if (window > 0 && has_window(sorted, size, window - kWindow, number)) return;
  const int lane = thread % kWarp;
  const auto is_same = [&](int place) {
    return place >= 0 && place < size && sorted.numbers[place] == number;
  };
  int first = window;
  for (int k = 0; k < 2; ++k)
    first -= __popc(__ballot_sync(0xffffffffu, is_same(window - 1 - k * kWarp - lane)));
  int end = first;  // of the number's places, as far as they are found
  int index[2];     // rows of the stage that is copied next; -1: none
  const auto find_rows = [&] {
    const int begin = end;
    for (int k = 0; k < 2; ++k) {
      const int place = begin + k * kWarp + lane;
      const bool same = is_same(place);
      index[k] = same ? sorted.indices[place] : -1;
      end += __popc(__ballot_sync(0xffffffffu, same));
    }
  };
  const int64_t slice = static_cast<int64_t>(blockIdx.y) * kColumns;
  const auto copy_rows = [&](int stage) {
    const int row = thread / kChunks, chunk = thread % kChunks;
    const int64_t column = slice + chunk * kPackSize<T>;
    for (int k = 0; k < 2; ++k) {
      const int from = __shfl_sync(0xffffffffu, index[k], row);
      copy_async(shared_address(&stages[stage % kStages][k * kWarp + row][chunk]),
                 dy + int64_t{from} * C + column, from >= 0 && column < C);
    }
    commit_copies();
    find_rows();
  };
  const bool has_column = thread < kColumns && slice + thread < C;
  float* const to = table + number * C + slice + thread;
  float sum = has_column ? *to : 0.0f;
  find_rows();
  for (int stage = 0; stage < kStages - 1; ++stage) copy_rows(stage);
  for (int stage = 0, begin = first; begin < end; ++stage, begin += kWindow) {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // the stage is complete, and the one before it has been added
    copy_rows(stage + kStages - 1);
    if (!has_column) continue;
    const int rows = min(kWindow, end - begin);
    const T* column = reinterpret_cast<const T*>(stages[stage % kStages]) + thread;
#pragma unroll 16
    for (int row = 0; row < rows; ++row) sum += to_float(column[row * kColumns]);
  }
  if (has_column) *to = sum;
}

template <class T, int N>
void launch_add_rows(Stream& stream, const Tensor& table, const Tensor& dy, const Indexed& sorted) {
  const int64_t C = dy.shape[-1], slices = (C + kWarp * N - 1) / (kWarp * N), warps = dy.rows() * slices;
  const int size = static_cast<int>(dy.rows());
  add_rows_kernel<T, N><<<blocks_for(warps, kWarps), kThreads, 0, native(stream)>>>(
      table.as<float>(), dy.as<T>(), sorted, size, C, static_cast<int>(slices));
  check_launch(stream, "embedding_backward");
  if (N == 1 || size < kWindow) return;
  constexpr int64_t kColumns = kChunks * kPackSize<T>;
  const dim3 grid(static_cast<unsigned>(size / kWindow), blocks_for(C, kColumns));
  add_frequent_kernel<T>
      <<<grid, kThreads, 0, native(stream)>>>(table.as<float>(), dy.as<T>(), sorted, size, C);
  check_launch(stream, "embedding_backward: add_frequent");
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
