#pragma once
// Loops over the rows of a tensor on the GPU, and sums over them. The width of a row determines how many
// threads share it, with one or two packs of 16 bytes each: a row of 128 elements of 16 bits takes 8 or 16
// lanes, a row of 8192 a whole block. The threads keep their columns of a row in registers. A fixed number of
// blocks takes the rows in turn, so the order of sums over rows does not depend on the GPU.
//
// Sums over rows, such as dw, have two levels: a thread adds its rows, the rows of a block are joined by a
// tree in shared memory, and each block writes one partial row. A second kernel adds the partial rows of each
// column by a tree.

#include <algorithm>
#include <bit>
#include <iterator>
#include <type_traits>

#include "kernels/cuda_util.cuh"
#include "kernels/row_grid.h"
#include "kernels/tensor_core.cuh"
#include "runtime/check.h"

namespace flatshard::cuda {

inline constexpr int kRowThreads = 512;  // most threads of a block

// A pack of elements as in memory, zero by default. Elements of 16 bits stay in pairs: as separate values,
// each would take a register, and an instruction whenever it is copied.
template <class T, int N>
struct RowPack {
  uint32_t word[N * sizeof(T) / 4] = {};

  __device__ static RowPack load(const T* p) {
    RowPack pack;
    for (int i = 0; i < static_cast<int>(std::size(pack.word)); i += 4) {
      const uint4 piece = *reinterpret_cast<const uint4*>(p + i * 4 / sizeof(T));
      pack.word[i] = piece.x, pack.word[i + 1] = piece.y;
      pack.word[i + 2] = piece.z, pack.word[i + 3] = piece.w;
    }
    return pack;
  }
  // Stores the pack by assembly, because nvcc splits some of these stores.
  __device__ void store(T* p) const {
    for (int i = 0; i < static_cast<int>(std::size(word)); i += 4)
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p + i * 4 / sizeof(T)), "r"(word[i]),
                   "r"(word[i + 1]), "r"(word[i + 2]), "r"(word[i + 3])
                   : "memory");
  }
  __device__ static RowPack rounded(const float (&value)[N]) {
    RowPack pack;
    for (int i = 0; i < static_cast<int>(std::size(pack.word)); ++i)
      if constexpr (sizeof(T) == 4)
        pack.word[i] = __float_as_uint(value[i]);
      else
        pack.word[i] = cuda::pack<T>(value[2 * i], value[2 * i + 1]);
    return pack;
  }
  __device__ float operator[](int j) const {
    const uint32_t w = word[j * sizeof(T) / 4];
    if constexpr (std::is_same_v<T, float>)
      return __uint_as_float(w);
    else if constexpr (std::is_same_v<T, bf16>)
      return __uint_as_float(j % 2 ? w & 0xffff0000u : w << 16);
    else
      return __half2float(__ushort_as_half(static_cast<uint16_t>(j % 2 ? w >> 16 : w)));
  }
};
template <class T>
struct RowPack<T, 1> {
  T value{};

  __device__ static RowPack load(const T* p) { return {*p}; }
  __device__ void store(T* p) const { *p = value; }
  __device__ static RowPack rounded(const float (&value)[1]) { return {from_float<T>(value[0])}; }
  __device__ float operator[](int) const { return to_float(value); }
};

// The place of this thread: it shares row threadIdx.y of the block's rows with the other threads of that row.
// Its pack k of N elements starts at column slab + (k * blockDim.x + threadIdx.x) * N. Rows wider than the
// packs of a block (kWide) are passed over slab by slab.
template <int N, int kPacks, bool kWide>
struct RowPart {
  template <class T>
  struct Columns {
    RowPack<T, N> pack[kPacks];

    __device__ float operator()(int k, int j) const { return pack[k][j]; }
  };
  using Floats = float[kPacks][N];

  __device__ static int column(int slab, int k) {
    return slab + (k * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * N;
  }

  // Calls body(slab) for each slab of a row of C elements.
  template <class Body>
  __device__ static void for_each_slab(int C, Body body) {
    if constexpr (kWide)
      for (int slab = 0; slab < C; slab += kPacks * kRowThreads * N) body(slab);
    else
      body(0);
  }

  // Loads this thread's columns of a row; zero past the row's end, and if the row is not `inside` the tensor.
  template <class T>
  __device__ static Columns<T> load(const T* row, int slab, int C, bool inside = true) {
    Columns<T> columns;
    for (int k = 0; k < kPacks; ++k)
      if (inside && column(slab, k) < C) columns.pack[k] = RowPack<T, N>::load(row + column(slab, k));
    return columns;
  }

  // Stores this thread's columns, rounded to T, up to the row's end.
  template <class T>
  __device__ static void store(T* row, int slab, int C, const Floats& values) {
    for (int k = 0; k < kPacks; ++k)
      if (column(slab, k) < C) RowPack<T, N>::rounded(values[k]).store(row + column(slab, k));
  }

  // Rounds the values to T.
  template <class T>
  __device__ static void round(Floats& values) {
    if constexpr (!std::is_same_v<T, float>)
      for (int k = 0; k < kPacks; ++k) {
        const auto pack = RowPack<T, N>::rounded(values[k]);
        for (int j = 0; j < N; ++j) values[k][j] = pack[j];
      }
  }

  // Calls body(k, j) for each of the thread's elements.
  template <class Body>
  __device__ static void for_each_element(Body body) {
    for (int k = 0; k < kPacks; ++k)
      for (int j = 0; j < N; ++j) body(k, j);
  }
};

// The first row that this thread shares, and the distance to its next one.
__device__ inline int first_row() { return static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y); }
__device__ inline int row_stride() { return static_cast<int>(gridDim.x * blockDim.y); }

// Calls body(row, next, turn) for the rows that this thread shares. `next` is the row of the following call,
// and `turn` alternates between 0 and 1. The last rows may be past the end, as all threads of a block take
// part in its barriers.
template <class Body>
__device__ inline void for_each_row(int rows, Body body) {
  int turn = 0;
  for (int row = first_row(); row - static_cast<int>(threadIdx.y) < rows; row += row_stride()) {
    body(row, row + row_stride(), turn);
    turn ^= 1;
  }
}

// This thread's columns of a row of the inputs of a norm's backward pass: x, dy, and dx if it accumulates. An
// input that is null is zero, and so are rows past the end. Copies to shared memory run kAhead rows ahead; a
// thread copies only what it reads itself, so they need no barrier. Elements that are not in packs, and the
// slabs of wide rows, are loaded when they are taken.
template <class T, int N, int kPacks, bool kWide>
class BackwardRow {
 public:
  using Part = RowPart<N, kPacks, kWide>;
  static constexpr bool kCopies = !kWide && N > 1;
  static constexpr int kAhead = 2, kInputs = 3;
  static constexpr int kSharedBytes = kCopies ? kAhead * kInputs * kPacks * kRowThreads * 16 : 0;

  typename Part::template Columns<T> x, dy, dx;

  __device__ BackwardRow(const void* x_rows, const void* dy_rows, const void* dx_rows, int rows, int C)
      : rows_(rows), C_(C), inputs_{x_rows, dy_rows, dx_rows} {
    if constexpr (kCopies)
      for (int turn = 0; turn < kAhead; ++turn) {
        for (int input = 0; input < kInputs; ++input) copy(input, first_row() + turn * row_stride(), turn);
        commit_copies();
      }
  }

  // Takes x and dy, or their columns in a slab, and then dx. In place of a row that is taken, the copy of the
  // one kAhead rows later starts.
  __device__ void take_x_dy(int row, int slab, int turn) {
    if constexpr (kCopies) wait_for_copies<kAhead - 1>();
    take(x, 0, row, slab, turn);
    take(dy, 1, row, slab, turn);
  }
  __device__ void take_dx(int row, int slab, int turn) {
    take(dx, 2, row, slab, turn);
    if constexpr (kCopies) commit_copies();
  }

 private:
  __device__ const T* row_of(int input, int row) const {
    return static_cast<const T*>(inputs_[input]) + static_cast<int64_t>(row) * C_;
  }
  // Where this thread keeps a pack of an input. `turn` alternates with its rows.
  __device__ static T* place(int turn, int input, int k) {
    extern __shared__ uint4 copies[];
    const int index = (turn * kInputs + input) * kPacks + k;
    const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    return reinterpret_cast<T*>(copies + index * kRowThreads + thread);
  }
  __device__ void copy(int input, int row, int turn) const {
    for (int k = 0; k < kPacks; ++k)
      copy_async(shared_address(place(turn, input, k)), row_of(input, row) + Part::column(0, k),
                 inputs_[input] && row < rows_ && Part::column(0, k) < C_);
  }
  __device__ void take(typename Part::template Columns<T>& columns, int input, int row, int slab,
                       int turn) const {
    if constexpr (kCopies) {
      for (int k = 0; k < kPacks; ++k) columns.pack[k] = RowPack<T, N>::load(place(turn, input, k));
      copy(input, row + kAhead * row_stride(), turn);
    } else {
      columns = Part::template load<T>(row_of(input, row), slab, C_, inputs_[input] && row < rows_);
    }
  }

  int rows_, C_;
  const void* inputs_[kInputs];
};

// Sums over the threads that share a row, of kCount values at a time, with one barrier each: a tree over the
// lanes of a warp, then the sums of the row's warps in order.
template <int kCount>
struct RowSums {
  float value[kCount] = {};

  // Replaces `value` by its sum over the row's threads. With alternating turns, the barrier of one call
  // separates the reads of the previous call from the writes of the next.
  __device__ void add_up(int turn) {
    const int width = static_cast<int>(blockDim.x);
    if (width >= kWarp) {
      for (float& v : value) v = warp_sum(v);
    } else {
      for (int offset = kWarp / 4; offset > 0; offset /= 2)
        if (offset < width)
          for (float& v : value) v += __shfl_xor_sync(0xffffffffu, v, offset);
    }
    if (width <= kWarp) return;
    // The sums of a row begin at a multiple of four, because four floats are one access.
    constexpr int kSlots = 2 * kRowThreads / kWarp;
    alignas(16) __shared__ float warps[2][kCount][kSlots];
    const int count = width / kWarp;
    float* sum = warps[turn][0] + static_cast<int>(threadIdx.y) * ((count + 3) / 4 * 4);
    if (threadIdx.x % kWarp == 0)
      for (int i = 0; i < kCount; ++i) sum[i * kSlots + static_cast<int>(threadIdx.x) / kWarp] = value[i];
    __syncthreads();
    for (float& v : value) v = 0.0f;
    const float* const fours = sum + count / 4 * 4;
    const float* const end = sum + count;
#pragma unroll 1
    for (; sum < fours; sum += 4)
      for (int i = 0; i < kCount; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(sum + i * kSlots);
        value[i] = value[i] + four.x + four.y + four.z + four.w;
      }
#pragma unroll 1
    for (; sum < end; ++sum)
      for (int i = 0; i < kCount; ++i) value[i] += sum[i * kSlots];
  }
};

// A row of partial sums. A pack of N columns is split into pieces of 16 bytes; the first pieces of all packs
// are stored first, then the second ones, so that accesses of neighboring lanes are coalesced.
template <int N>
struct PartialRow {
  static constexpr int kPiece = N < kPackSize<float> ? N : kPackSize<float>;
  static constexpr int kPieces = N / kPiece;
  using Piece = Pack<float, kPiece>;
  int C;

  // The index of a piece of the pack that starts at column i.
  __device__ int place(int i, int piece) const { return (piece * (C / N) + i / N) * kPiece; }
  __device__ int column(int place) const {
    const int piece = place / kPiece, packs = C / N;
    return piece % packs * N + piece / packs * kPiece + place % kPiece;
  }
  __device__ static Piece piece_of(const float* sums) {
    Piece piece;
    for (int j = 0; j < kPiece; ++j) piece.element[j] = sums[j];
    return piece;
  }
};

// Adds the sums of the block's rows, of one pack of columns a thread, by a tree in shared memory: 16 KiB a
// block for packs of 8, which threads access at stride one, so without bank conflicts. The first row of
// threads gets the total.
template <int N>
__device__ inline void join_rows(float (&sums)[N]) {
  using Row = PartialRow<N>;
  __shared__ typename Row::Piece joined[Row::kPieces][kRowThreads];
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  __syncthreads();  // the array may still be read by the caller's previous sum
  for (int piece = 0; piece < Row::kPieces; ++piece)
    joined[piece][thread] = Row::piece_of(sums + piece * Row::kPiece);
  for (int rows = static_cast<int>(blockDim.y), half; rows > 1; rows = half) {
    half = (rows + 1) / 2;
    __syncthreads();
    if (static_cast<int>(threadIdx.y) + half >= rows) continue;
    for (int piece = 0; piece < Row::kPieces; ++piece) {
      const typename Row::Piece other = joined[piece][thread + half * static_cast<int>(blockDim.x)];
      for (int j = 0; j < Row::kPiece; ++j) sums[piece * Row::kPiece + j] += other.element[j];
      joined[piece][thread] = Row::piece_of(sums + piece * Row::kPiece);
    }
  }
}

// The sums over the rows of a block, for this thread's columns: in registers, or in the block's partial row
// in global memory if rows are wide.
template <int N, int kPacks, bool kWide>
struct BlockSums {
  using Part = RowPart<N, kPacks, kWide>;
  using Row = PartialRow<N>;
  float* partial;  // the block's partial row of C columns; null: not wanted
  int C;
  float sum[kPacks][N] = {};

  // For wide rows, begin() and end() surround the additions to the sums of a slab.
  __device__ void begin(int slab, bool first_row) {
    if constexpr (kWide)
      for_each_piece(slab, [&](float* at, float* sums) {
        const auto piece = first_row ? typename Row::Piece{} : load<float, Row::kPiece>(at);
        for (int j = 0; j < Row::kPiece; ++j) sums[j] = piece.element[j];
      });
  }
  __device__ void end(int slab) {
    if constexpr (kWide) store_slab(slab);
  }
  // To be called after the last row.
  __device__ void finish() {
    if (kWide || !partial) return;
    if constexpr (kPacks == 1) join_rows<N>(sum[0]);  // with two packs, a row takes the whole block
    if (threadIdx.y == 0) store_slab(0);
  }

 private:
  template <class Body>
  __device__ void for_each_piece(int slab, Body body) {
    for (int k = 0; k < kPacks; ++k)
      for (int piece = 0; piece < Row::kPieces; ++piece)
        if (partial && Part::column(slab, k) < C)
          body(partial + Row{C}.place(Part::column(slab, k), piece), sum[k] + piece * Row::kPiece);
  }
  __device__ void store_slab(int slab) {
    for_each_piece(slab,
                   [](float* at, const float* sums) { store<float, Row::kPiece>(at, Row::piece_of(sums)); });
  }
};

inline constexpr int kTotalColumns = kWarp, kTotalRows = 16;  // threads of a block
// Most partial rows that a thread adds.
inline constexpr int kTotalEach = (static_cast<int>(kRowGridBlocks) + kTotalRows - 1) / kTotalRows;

// The sums over `count` partial rows: C columns for `first`, and if rows have more, C columns for `second`; a
// null total is not wanted. A block adds kTotalColumns columns: a thread adds every 16th row, then a tree in
// 2 KiB of shared memory joins them. Latency limits it, so a thread loads all its values before it adds them.
struct Totals {
  float *first, *second;
};
template <int N>
__global__ void __launch_bounds__(kTotalColumns* kTotalRows)
    add_partials_kernel(Totals totals, const float* partials, int count, int stride, int C, bool accumulate) {
  __shared__ float sums[kTotalRows][kTotalColumns];
  const int place = static_cast<int>(blockIdx.x) * kTotalColumns + static_cast<int>(threadIdx.x);
  float& sum = sums[threadIdx.y][threadIdx.x];
  float value[kTotalEach];
  for (int i = 0; i < kTotalEach; ++i) {
    const int row = static_cast<int>(threadIdx.y) + i * kTotalRows;
    value[i] = place < stride && row < count ? partials[static_cast<int64_t>(row) * stride + place] : 0.0f;
  }
  sum = 0.0f;
  for (const float v : value) sum += v;
  for (int half = kTotalRows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.y) < half) sum += sums[threadIdx.y + half][threadIdx.x];
  }
  float* total = place < C ? totals.first : totals.second;
  if (threadIdx.y > 0 || place >= stride || !total) return;
  const int column = PartialRow<N>{C}.column(place % C);
  total[column] = accumulate ? total[column] + sum : sum;
}

// Adds the first `count` rows of `partials`, (rows, totals of C columns), to the totals or writes them.
template <int N>
void add_partials(Stream& stream, const char* name, const Totals& totals, const Tensor& partials,
                  int64_t count, int64_t C, bool accumulate) {
  const int64_t stride = partials.shape[-1];
  const dim3 threads(kTotalColumns, kTotalRows);
  add_partials_kernel<N><<<blocks_for(stride, kTotalColumns), threads, 0, native(stream)>>>(
      totals, partials.as<float>(), static_cast<int>(count), static_cast<int>(stride), static_cast<int>(C),
      accumulate);
  check_launch(stream, name);
}

// The thread blocks of a loop over rows.
struct RowGrid {
  dim3 block;
  unsigned blocks;
};
inline RowGrid row_grid(int64_t rows, int64_t packs, int per_thread, int64_t most_blocks) {
  int64_t lanes = std::min<int64_t>((packs + per_thread - 1) / per_thread, kRowThreads);
  lanes = lanes < kWarp ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(lanes)))
                        : (lanes + kWarp - 1) / kWarp * kWarp;
  const int64_t rows_at_once = kRowThreads / lanes;
  return {.block = dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(rows_at_once)),
          .blocks = static_cast<unsigned>(std::min(most_blocks, (rows + rows_at_once - 1) / rows_at_once))};
}

// Calls launch.operator()<N, kPacks, kWide>(grid) for `rows` rows of C elements of T, in packs of 16 bytes if
// `packable`, kPreferred a thread unless rows are too wide, by at most `most_blocks` blocks.
template <class T, int kPreferred, class Launch>
void visit_row_grid(int64_t rows, int64_t C, bool packable, int64_t most_blocks, Launch&& launch) {
  constexpr int64_t kMost = int64_t{1} << 30;  // kernels count rows and columns with an int
  check(rows <= kMost && C <= kMost, "a norm on a GPU has at most 2^30 rows of 2^30 elements, not ", rows,
        " of ", C);
  const auto visit = [&]<int N>() {
    const int64_t packs = C / N;
    const auto grid = [&](int per_thread) { return row_grid(rows, packs, per_thread, most_blocks); };
    if (packs <= kPreferred * kRowThreads)
      return launch.template operator()<N, kPreferred, false>(grid(kPreferred));
    if constexpr (kPreferred == 1 && N > 1)
      if (packs <= 2 * kRowThreads) return launch.template operator()<N, 2, false>(grid(2));
    launch.template operator()<N, 2, true>(grid(2));
  };
  packable ? visit.template operator()<kPackSize<T>>() : visit.template operator()<1>();
}

}  // namespace flatshard::cuda
