#pragma once
// The matrix product on sm_90 (Hopper): c = alpha a b + bias + addend, with sums in fp32. What becomes of the
// sums is an end: it writes c, or gated units or their gradients with it.
//
// A block computes one tile of c after another, of 128 rows and 256 columns. Two warpgroups have 64 rows of
// it each, 128 sums a thread; the first thread of a third copies tiles of a and b, 64 of the K terms at a
// time, into a ring of four stages:
//
//   copier      a0 b0   a1 b1   a2 b2   a3 b3   | a0 b0 of the next tile ...      48 KiB a stage, 192 in all
//   group 0             products 0 | 1 | 2 | 3  | end: rounds and writes | products 0 ...
//   group 1             products 0 | 1 | 2 | 3  | end                    | products 0 ...
//
// The copier goes on while the groups write, so that their next tile begins at once. If the rows of an
// operand are gathered by index, all threads of the third group copy them, in pieces of 16 bytes. Sums over K
// have one order, whatever the number of rows, columns and blocks: a row of c depends on that row of a alone.

#include <algorithm>
#include <type_traits>

#include "kernels/gates.cuh"
#include "kernels/gemm.h"
#include "kernels/tensor_copy.cuh"
#include "kernels/warpgroup.cuh"

namespace flatshard::cuda {

struct ProductTiles : Groups<2> {
  static constexpr int kConsumers = 2, kColumns = 256, kHalf = kColumns / 2, kDepth = 64, kStages = 4;
};

// A tile of a for each group, and a tile of b, as the copier writes them and products read them.
template <bool kTransposeA, bool kTransposeB>
struct Stage {
  static_assert(kGroupRows == ProductTiles::kDepth);
  using A = PanelTile<kGroupRows, kGroupRows>;
  template <int kColumns>
  using OfB = std::conditional_t<kTransposeB, PanelTile<ProductTiles::kDepth, kColumns>,
                                 PanelTile<kColumns, ProductTiles::kDepth>>;
  using B = OfB<ProductTiles::kColumns>;
  using HalfB = OfB<ProductTiles::kHalf>;  // two make up a B
  static constexpr int kBytes = ProductTiles::kConsumers * A::kBytes + B::kBytes;

  uint32_t begin;

  __device__ A a(int group) const { return {begin + group * A::kBytes}; }
  __device__ B b() const { return {a(ProductTiles::kConsumers).begin}; }
  __device__ HalfB half_b(int half) const { return {b().begin + half * HalfB::kBytes}; }
  // Operands of 16 terms, from `k` on: the rows of a group, and all columns.
  __device__ uint64_t left(int group, int k) const {
    return kTransposeA ? a(group).down(k) : a(group).along(0, k);
  }
  __device__ uint64_t right(int k) const { return kTransposeB ? b().along(0, k) : b().down(k); }
};

// The tiles of a matrix, in the order in which blocks take them. Those that run at a time lie in few rows and
// columns of tiles, so that their operands stay in the L2 cache: eight rows of tiles, column after column.
struct TileGrid {
  static constexpr int kTogether = 8;

  int rows, columns;  // counted in tiles

  __host__ __device__ int count() const { return rows * columns; }
  struct Place {
    int row, column;
  };
  __device__ Place place(int tile) const {
    const int band = tile / (kTogether * columns), first = band * kTogether, in_band = tile - first * columns,
              height = min(kTogether, rows - first);
    return {first + in_band % height, in_band / height};
  }
};

// A tile, and the terms of its sums.
struct Job {
  int first_row, end_row;  // rows of c; those from end_row on belong to other tiles
  int column;              // a column of tiles
  int matrix;              // the matrix of b, or of c, if there are several
  int first_term, steps;   // a step is kDepth terms
};

// Which operand's rows are gathered by index, from anywhere in a matrix: rows of a are rows of c, rows of b
// are terms.
enum class Gathers { none, a, b };

// Rows of 16-bit elements, with the index of the one that is row i; zeros where it is negative.
struct GatheredRows {
  const void* begin;
  const int* index;
  int64_t stride;
  int columns;
};

// The jobs of a launch. A block looks for those of ascending tiles with a copy of its own; find() returns
// whether there is such a tile.

// One matrix.
struct DenseJobs {
  static constexpr bool kMatricesOfB = false;
  TileGrid grid;
  int rows, steps;

  int blocks(int most) const { return min(most, grid.count()); }
  __device__ bool find(int tile, Job& job) const {
    if (tile >= grid.count()) return false;
    const TileGrid::Place place = grid.place(tile);
    job = {place.row * ProductTiles::kRows, rows, place.column, 0, 0, steps};
    return true;
  }
};

// Segments of rows of a and c, each with a matrix of b. The rows behind the last become zero: a segment
// without terms.
struct RowSegments {
  static constexpr bool kMatricesOfB = true;
  const int* offsets;
  int segments, columns, rows, steps;  // columns of tiles, rows of c
  int segment = 0, before = 0;         // tiles of segments before

  int blocks(int most) const { return most; }
  __device__ bool find(int tile, Job& job) {
    for (; segment <= segments; ++segment) {
      const int begin = offsets[segment], end = segment < segments ? offsets[segment + 1] : rows;
      const TileGrid grid{(end - begin + ProductTiles::kRows - 1) / ProductTiles::kRows, columns};
      if (tile - before < grid.count()) {
        const TileGrid::Place place = grid.place(tile - before);
        job = {begin + place.row * ProductTiles::kRows, end, place.column, segment, 0,
               segment < segments ? steps : 0};
        return true;
      }
      before += grid.count();
    }
    return false;
  }
};

// Segments of terms, each with a matrix of c.
struct TermSegments {
  static constexpr bool kMatricesOfB = false;
  const int* offsets;
  int segments;
  TileGrid grid;  // the tiles of each matrix
  int rows;

  int blocks(int most) const { return min(most, segments * grid.count()); }
  __device__ bool find(int tile, Job& job) const {
    const int segment = tile / grid.count();
    if (segment >= segments) return false;
    const TileGrid::Place place = grid.place(tile - segment * grid.count());
    const int begin = offsets[segment];
    job = {place.row * ProductTiles::kRows,
           rows,
           place.column,
           segment,
           begin,
           (offsets[segment + 1] - begin) / ProductTiles::kDepth};
    return true;
  }
};

// Four neighboring columns of a row.
struct Four {
  float at[4];

  template <class T>
  static __device__ Four from(const T* from) {
    const Pack<T, 4> v = load<T, 4>(from);
    return {to_float(v.element[0]), to_float(v.element[1]), to_float(v.element[2]), to_float(v.element[3])};
  }
  template <class T>
  __device__ void round() {
#pragma unroll
    for (float& value : at) value = round_to<T>(value);
  }
  // Rounds to T.
  template <class T>
  __device__ void store_to(T* to) {
    Pack<T, 4> v;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v.element[i] = from_float<T>(at[i]);
      at[i] = to_float(v.element[i]);
    }
    store<T, 4>(to, v);
  }
  // Rotates the pairs with `second`.
  __device__ void rotate(Four& second, const Four& cosines, const Four& sines) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float a = at[i], b = second.at[i];
      at[i] = fmaf(a, cosines.at[i], -b * sines.at[i]);
      second.at[i] = fmaf(b, cosines.at[i], a * sines.at[i]);
    }
  }
  __device__ void add(const Four& other) {
#pragma unroll
    for (int i = 0; i < 4; ++i) at[i] += other.at[i];
  }
};

// --- ends. A lane has all sums of four columns, or with kApart also those of the four columns that many
// columns further in its tile. With kHalves they lie in the two halves of c.

// c = alpha sums + bias + addend.
template <class T, class C>
struct PlainEnd {
  static constexpr bool kHalves = false;
  static constexpr int kApart = 0;
  C* c;
  const C* addend;  // null: none
  const T* bias;    // null: none
  int64_t stride;   // elements between rows of c and of the addend
  int columns;
  float alpha;
  int64_t between = 0;  // elements between matrices of c

  __device__ void write(const Job& job, int row, int column, Four v) const {
    const int64_t at = job.matrix * between + row * stride + column;
#pragma unroll
    for (float& sum : v.at) sum *= alpha;
    if (bias) v.add(Four::from(bias + column));
    if (addend) v.add(Four::from(addend + at));
    v.store_to(c + at);
  }
};

// c = sums + bias are gate and up, each `columns` wide, and y = P(gate) gate up.
template <class T, class Of>
struct GatedEnd {
  static constexpr bool kHalves = true;
  static constexpr int kApart = ProductTiles::kHalf;
  T *c, *y;
  const T* bias;  // null: none
  int64_t stride, y_stride;
  int columns;

  __device__ void write(const Job&, int row, int column, Four gate, Four up) const {
    T* const to = c + row * stride + column;
    if (bias) {
      gate.add(Four::from(bias + column));
      up.add(Four::from(bias + columns + column));
    }
    gate.store_to(to);
    up.store_to(to + columns);
#pragma unroll
    for (int i = 0; i < 4; ++i) gate.at[i] = gated<Of>(gate.at[i], up.at[i]);
    gate.store_to(y + row * y_stride + column);
  }
};

// The sums are the gradient of gated units y, which only the gradients of gate and up are made of.
template <class T, class Of>
struct GradientEnd {
  static constexpr bool kHalves = false;
  static constexpr int kApart = 0;
  const T *gate, *up;
  T *dgate, *dup;
  int64_t stride;  // elements between rows of all four
  int columns;

  __device__ void write(const Job&, int row, int column, Four dy) const {
    const int64_t at = row * stride + column;
    Four g = Four::from(gate + at), u = Four::from(up + at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const GatedGradient d = gated_gradient<Of>(to_float(from_float<T>(dy.at[i])), g.at[i], u.at[i]);
      g.at[i] = d.gate;
      u.at[i] = d.up;
    }
    g.store_to(dgate + at);
    u.store_to(dup + at);
  }
};

// c = sums + bias are heads of 2 kHalfHead columns, the first ones of which are rotated as rope.cu does.
template <class T, int kHalfHead>
struct RotatedEnd {
  static constexpr bool kHalves = false;
  static constexpr int kApart = kHalfHead;
  T* c;
  const T* bias;  // null: none
  const int32_t* positions;
  const float* table;  // kHalfHead cosines and as many sines for each position
  int64_t stride;
  int columns, rotated, positions_end;

  __device__ void write(const Job&, int row, int column, Four a, Four b) const {
    T* const to = c + row * stride + column;
    if (bias) {
      a.add(Four::from(bias + column));
      b.add(Four::from(bias + column + kHalfHead));
    }
    if (column < rotated) {
      const int32_t position = positions[row];
      require(position >= 0 && position < positions_end);
      const float* const turn = table + int64_t{position} * (2 * kHalfHead) + column % kHalfHead;
      a.round<T>();
      b.round<T>();
      a.rotate(b, Four::from(turn), Four::from(turn + kHalfHead));
    }
    a.store_to(to);
    b.store_to(to + kHalfHead);
  }
};

template <class Jobs, class End>
struct ProductArguments {
  CUtensorMap a, b;
  Jobs jobs;
  End end;
  GatheredRows gathered;  // stands for a with Gathers::a, and for b with Gathers::b

  // The first of the 128 columns of a half of a tile.
  __device__ int first_column(int tile, int half) const {
    return End::kHalves ? tile * ProductTiles::kHalf + half * end.columns
                        : tile * ProductTiles::kColumns + half * ProductTiles::kHalf;
  }
};

// Sums of four neighboring columns: of each two groups of 8 columns, the lanes of a pair exchange two sums,
// so that four lanes have 16 columns of a row.
template <int kColumns>
struct Exchange {
  const Sums<1, kColumns>& sums;

  static __device__ bool is_odd() { return threadIdx.x % 2 != 0; }
  // The lane's columns of groups n and n + 1.
  static __device__ int column(int n) {
    return 8 * n + (is_odd() ? 8 : 0) + static_cast<int>(threadIdx.x) % 4 / 2 * 4;
  }
  __device__ Four four(int own_row, int n) const {
    const float *low = &sums.at[0][n][2 * own_row], *high = &sums.at[0][n + 1][2 * own_row];
    float got[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) got[i] = __shfl_xor_sync(0xffffffffu, is_odd() ? low[i] : high[i], 1);
    return is_odd() ? Four{got[0], got[1], high[0], high[1]} : Four{low[0], low[1], got[0], got[1]};
  }
};

// What an end does with whole rows of a tile before it writes: nothing, unless it is overloaded.
template <class Arguments>
__device__ void begin_end(const Arguments&, Sums<1, ProductTiles::kColumns>&, const Job&, int) {}

// Hands a warp's sums to the end; the warp's first row is `row` of the tile.
template <class Jobs, class End>
__device__ void end_tile(const ProductArguments<Jobs, End>& a, Sums<1, ProductTiles::kColumns>& sums,
                         const Job& job, int row) {
  begin_end(a, sums, job, row);
  constexpr int kApart = End::kApart, kPair = kApart > 0 ? kApart : ProductTiles::kColumns;
  const Exchange<ProductTiles::kColumns> lanes{sums};
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int n = 0; n < ProductTiles::kColumns / 8; n += 2) {
      if (n * 8 / kPair % 2 != 0) continue;  // the further columns of a pair
      const int i = job.first_row + row + sums.row_of(r), j = a.first_column(job.column, 0) + lanes.column(n);
      const bool exists = i < job.end_row && j < a.end.columns;
      const Four v = lanes.four(r, n);
      if constexpr (kApart > 0) {
        const Four further = lanes.four(r, n + kApart / 8);
        if (exists) a.end.write(job, i, j, v, further);
      } else {
        if (exists) a.end.write(job, i, j, v);
      }
    }
}

// Fills the stages of a block's tiles, one after another. `a_` and `b_` are copied as boxes by the first
// thread of the group, unless they are gathered.
template <class Jobs, class End, Gathers kGathers, bool kTransposeA, bool kTransposeB>
struct Copier {
  using Tiles = ProductTiles;
  using Stage = cuda::Stage<kTransposeA, kTransposeB>;
  static_assert(kGathers != Gathers::a || !kTransposeA);
  static_assert(kGathers != Gathers::b || !kTransposeB);
  static constexpr bool kBoxesOfA = kGathers != Gathers::a, kBoxesOfB = kGathers != Gathers::b;
  static constexpr unsigned kBoxBytes =
      (kBoxesOfA ? Tiles::kConsumers * Stage::A::kBytes : 0) + (kBoxesOfB ? Stage::B::kBytes : 0);
  // The uses of the ring whose pieces may be on their way: two are enough to hide a latency, and leave two.
  static constexpr int kInFlight = 2;

  const ProductArguments<Jobs, End>& arguments;
  Ring<Tiles::kStages>& ring;
  uint32_t begin;

  // Arrivals for each use of the ring: of the boxes, and of each warp that gathers.
  static constexpr unsigned kArrivals = kGathers == Gathers::none ? 1 : 1 + kGroupWarps;

  __device__ Stage stage(int use) const { return {begin + ring.stage(use) * Stage::kBytes}; }
  static __device__ int thread() { return static_cast<int>(threadIdx.x) % kGroup; }

  __device__ void copy_boxes(const Job& job, int k, int use) const {
    uint64_t* const full = &ring.full[ring.stage(use)];
    arrive_and_expect(full, kBoxBytes);
    if constexpr (kBoxesOfA)
#pragma unroll
      for (int g = 0; g < Tiles::kConsumers; ++g) {
        const int m = job.first_row + g * kGroupRows;
        load_tile(stage(use).a(g), arguments.a, 0, kTransposeA ? k : m, full, kTransposeA ? m : k);
      }
    if constexpr (kBoxesOfB)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int n = arguments.first_column(job.column, half), matrix = Jobs::kMatricesOfB ? job.matrix : 0;
        load_tile(stage(use).half_b(half), arguments.b, matrix, kTransposeB ? n : k, full,
                  kTransposeB ? k : n);
      }
  }

  // Starts the copy of 16 bytes of a gathered row.
  __device__ void copy_piece(uint32_t to, int index, int column) const {
    const GatheredRows& rows = arguments.gathered;
    const bool exists = index >= 0 && column < rows.columns;
    const auto* const from =
        static_cast<const bf16*>(rows.begin) + (exists ? index * rows.stride + column : 0);
    copy_async(to, from, exists);
  }
  // Eight threads copy the terms of a row of a, 32 the columns of a row of b. Indices are read again for each
  // stage: the threads of this group have few registers.
  __device__ void gather_a(const Job& job, int k, int use) const {
    constexpr int kThreadsOfRow = Tiles::kDepth / 8, kStep = kGroup / kThreadsOfRow;
    const int chunk = thread() % kThreadsOfRow;
#pragma unroll 2
    for (int i = 0; i < Tiles::kRows / kStep; ++i) {
      const int row = thread() / kThreadsOfRow + i * kStep, of_c = job.first_row + row;
      const int index = of_c < job.end_row ? arguments.gathered.index[of_c] : -1;
      copy_piece(stage(use).a(row / kGroupRows).at(row % kGroupRows, chunk), index, k + chunk * 8);
    }
  }
  __device__ void gather_b(const Job& job, int k, int use) const {
    constexpr int kThreadsOfRow = Tiles::kColumns / 8, kStep = kGroup / kThreadsOfRow;
    const int chunk = thread() % kThreadsOfRow, column = arguments.first_column(job.column, 0) + chunk * 8;
#pragma unroll 2
    for (int i = 0; i < Tiles::kDepth / kStep; ++i) {
      const int row = thread() / kThreadsOfRow + i * kStep;
      copy_piece(stage(use).b().at(row, chunk), arguments.gathered.index[k + row], column);
    }
  }
  // Makes the pieces of a use, which this thread has waited for, visible to the products.
  __device__ void hand_over(int use) const {
    fence_proxy_async();
    __syncwarp();
    if (thread() % kWarp == 0) arrive(&ring.full[ring.stage(use)]);
  }

  __device__ void run() const {
    if (kGathers == Gathers::none && thread() != 0) return;
    Jobs jobs = arguments.jobs;
    Job job;
    int use = 0;
    for (int tile = blockIdx.x; jobs.find(tile, job); tile += gridDim.x) {
#pragma unroll 1
      for (int t = 0; t < job.steps; ++t, ++use) {
        const int k = job.first_term + t * Tiles::kDepth;
        ring.wait_empty(use);
        if (thread() == 0) copy_boxes(job, k, use);
        if constexpr (kGathers == Gathers::a) gather_a(job, k, use);
        if constexpr (kGathers == Gathers::b) gather_b(job, k, use);
        if constexpr (kGathers != Gathers::none) {
          commit_copies();
          wait_for_copies<kInFlight>();
          if (use >= kInFlight) hand_over(use - kInFlight);
        }
      }
    }
    if constexpr (kGathers != Gathers::none) {
      wait_for_copies<0>();
#pragma unroll 1
      for (int last = use < kInFlight ? 0 : use - kInFlight; last < use; ++last) hand_over(last);
    }
  }
};

template <class T, class Jobs, class End, bool kTransposeA, bool kTransposeB, Gathers kGathers>
__global__ void __launch_bounds__(ProductTiles::kThreads, 1)
    gemm_sm90_kernel(const __grid_constant__ ProductArguments<Jobs, End> a) {
  using Tiles = ProductTiles;
  using Copier = cuda::Copier<Jobs, End, kGathers, kTransposeA, kTransposeB>;
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ Ring<Tiles::kStages> ring;
  const Copier copier{a, ring, first_tile(memory)};
  if (threadIdx.x == 0) {
    ring.init(Copier::kArrivals, Tiles::kConsumers * kGroupWarps);
    fence_barrier_init();
  }
  __syncthreads();
  if (Tiles::copies()) {
    give_registers<Tiles::kOfCopier>();
    return copier.run();
  }
  take_registers<Tiles::kOfConsumer>();
  const int group = __shfl_sync(0xffffffffu, Tiles::group(), 0);
  const int warp = static_cast<int>(threadIdx.x) / kWarp % kGroupWarps;
  const bool speaks = threadIdx.x % kWarp == 0;  // this lane arrives for its warp
  int use = 0;                                   // counts the uses of the ring by all tiles of this block
  Jobs jobs = a.jobs;
  Job job;
  for (int tile = blockIdx.x; jobs.find(tile, job); tile += gridDim.x) {
    Sums<1, Tiles::kColumns> sums;
    fence_products(sums);
#pragma unroll 1
    for (int t = 0; t < job.steps; ++t, ++use) {
      ring.wait_full(use);
      __syncwarp();
#pragma unroll
      for (int k = 0; k < Tiles::kDepth; k += 16)
        multiply<T, kTransposeA, !kTransposeB>(sums.flat(), copier.stage(use).left(group, k),
                                               copier.stage(use).right(k), true);
      commit_products();
      wait_for_products<1>();
      if (speaks && t > 0) ring.release(use - 1);
    }
    wait_for_products<0>(sums);
    if (speaks && job.steps > 0) ring.release(use - 1);
    end_tile(a, sums, job, group * kGroupRows + warp * (kGroupRows / kGroupWarps));
  }
}

// The map for boxes of matrices (count, rows, columns), `columns` columns and `rows` rows each. `between` is
// the elements between matrices; 0: each follows the one before.
inline CUtensorMap map_of_matrices(const Tensor& of, int64_t count, int64_t stride, int64_t between,
                                   int columns, int rows) {
  const int64_t height = of.size() / count / of.shape[-1];
  return map_of_boxes({.begin = of.data,
                       .dtype = of.dtype,
                       .extents = {of.shape[-1], count, height},
                       .strides = {between ? between : height * stride, stride},
                       .columns = columns,
                       .rows = rows});
}

// A product of matrices of 16 bits; b may be several of one shape. Rows of a or of b may be gathered.
template <bool kTransposeA, bool kTransposeB, Gathers kGathers = Gathers::none>
struct Operands {
  using Stage = cuda::Stage<kTransposeA, kTransposeB>;
  Tensor a, b;
  int64_t a_stride, b_stride, matrices = 1;
  int64_t between = 0;         // elements between matrices of b; 0: each follows the one before
  const int* index = nullptr;  // the index of GatheredRows

  CUtensorMap map_of_a() const {
    return kGathers == Gathers::a ? CUtensorMap{}
                                  : map_of_matrices(a, 1, a_stride, 0, Stage::A::kPanel, kGroupRows);
  }
  CUtensorMap map_of_b() const {
    return kGathers == Gathers::b ? CUtensorMap{}
                                  : map_of_matrices(b, matrices, b_stride, between, Stage::B::kPanel,
                                                    kTransposeB ? ProductTiles::kHalf : ProductTiles::kDepth);
  }
  GatheredRows gathered() const {
    if (kGathers == Gathers::none) return {};
    const Tensor& rows = kGathers == Gathers::a ? a : b;
    return {rows.data, index, kGathers == Gathers::a ? a_stride : b_stride, static_cast<int>(rows.shape[-1])};
  }
};

// The columns of c, or of each of its halves, in a tile.
template <class End>
constexpr int kTileColumns = End::kHalves ? ProductTiles::kHalf : ProductTiles::kColumns;

inline int tiles_of(int64_t extent, int size) { return static_cast<int>((extent + size - 1) / size); }

template <class T, bool kTransposeA, bool kTransposeB, Gathers kGathers, class Jobs, class End>
void launch_product(Stream& stream, const Operands<kTransposeA, kTransposeB, kGathers>& of, const Jobs& jobs,
                    const End& end) {
  constexpr int kBytes = ProductTiles::kStages * Stage<kTransposeA, kTransposeB>::kBytes + kTileAlignment;
  const ProductArguments<Jobs, End> arguments{of.map_of_a(), of.map_of_b(), jobs, end, of.gathered()};
  const auto kernel = gemm_sm90_kernel<T, Jobs, End, kTransposeA, kTransposeB, kGathers>;
  allow_shared_bytes(kernel, kBytes);
  const int blocks = jobs.blocks(product_multiprocessors(stream.device()));
  kernel<<<static_cast<unsigned>(blocks), ProductTiles::kThreads, kBytes, native(stream)>>>(arguments);
  check_launch(stream, "gemm");
}

template <class T, class Of>
GatedEnd<T, Of> gated_end(const SwigluForward& f, const Tensor& c, const T* bias) {
  const int64_t F = f.y.shape[-1];
  return {.c = c.as<T>(),
          .y = f.y.as<T>(),
          .bias = bias,
          .stride = f.row_stride ? f.row_stride : F,
          .y_stride = f.y_stride ? f.y_stride : F,
          .columns = static_cast<int>(F)};
}

template <class T, class Of>
GradientEnd<T, Of> gradient_end(const SwigluBackward& f) {
  const int64_t F = f.dy.shape[-1];
  return {.gate = f.gate.as<T>(),
          .up = f.up.as<T>(),
          .dgate = f.dgate.as<T>(),
          .dup = f.dup.as<T>(),
          .stride = f.row_stride ? f.row_stride : F,
          .columns = static_cast<int>(F)};
}

template <class T, int kHalfHead>
RotatedEnd<T, kHalfHead> rotated_end(const RopeForward& f, const Tensor& c, int64_t stride, const T* bias) {
  return {.c = c.as<T>(),
          .bias = bias,
          .positions = f.positions.as<int32_t>(),
          .table = f.table.as<float>(),
          .stride = stride,
          .columns = static_cast<int>(c.shape[1]),
          .rotated = static_cast<int>(f.y.shape[1] * f.y.shape[2]),
          .positions_end = static_cast<int>(f.table.shape[0])};
}

}  // namespace flatshard::cuda
