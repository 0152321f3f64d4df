// The matrix product on sm_90 (Hopper): c = alpha a b + bias + addend, with sums in fp32.
//
// A block computes one tile of c after another, of 128 rows and 256 columns. Two warpgroups have 64 rows of
// it each, 128 sums a thread; the first thread of a third copies tiles of a and b, 64 of the K terms at a
// time, into a ring of four stages:
//
//   copier      a0 b0   a1 b1   a2 b2   a3 b3   | a0 b0 of the next tile ...      48 KiB a stage, 192 in all
//   group 0             products 0 | 1 | 2 | 3  | end: rounds and writes | products 0 ...
//   group 1             products 0 | 1 | 2 | 3  | end                    | products 0 ...
//
// The copier goes on while the groups write, so that their next tile begins at once. Sums over K have one
// order, whatever the number of rows, columns and blocks: a row of c depends on that row of a alone.

#include <algorithm>

#include "kernels/gemm_sm90.h"
#include "kernels/tensor_copy.cuh"
#include "kernels/warpgroup.cuh"

namespace flatshard::cuda {
namespace {

struct ProductTiles : Groups<2> {
  static constexpr int kConsumers = 2, kColumns = 256, kDepth = 64, kStages = 4;
};

// A tile of a for each group, and a tile of b, as the copier writes them and products read them.
template <bool kTransposeA, bool kTransposeB>
struct Stage {
  static_assert(kGroupRows == ProductTiles::kDepth);
  using A = PanelTile<kGroupRows, kGroupRows>;
  using B = std::conditional_t<kTransposeB, PanelTile<ProductTiles::kDepth, ProductTiles::kColumns>,
                               PanelTile<ProductTiles::kColumns, ProductTiles::kDepth>>;
  static constexpr int kBytes = ProductTiles::kConsumers * A::kBytes + B::kBytes;

  uint32_t begin;

  __device__ A a(int group) const { return {begin + group * A::kBytes}; }
  __device__ B b() const { return {a(ProductTiles::kConsumers).begin}; }
  // Operands of 16 terms, from `k` on: the rows of a group, and all columns.
  __device__ uint64_t left(int group, int k) const {
    return kTransposeA ? a(group).down(k) : a(group).along(0, k);
  }
  __device__ uint64_t right(int k) const { return kTransposeB ? b().along(0, k) : b().down(k); }
};

// The tiles of c, in the order in which blocks take them. Those that run at a time lie in few rows and
// columns of tiles, so that their operands stay in the L2 cache: eight rows of tiles, column after column.
struct TileOrder {
  static constexpr int kTogether = 8;

  int rows, columns;  // of tiles

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

template <class T, class C>
struct ProductArguments {
  CUtensorMap a, b;
  TileOrder order;
  int steps;  // of kDepth terms
  int rows, columns;
  C* c;
  const C* addend;  // null: none
  const T* bias;    // null: none
  int64_t stride;   // of c and the addend
  float alpha;
};

// Calls use(row, column, four) for each four neighboring columns. Of each two groups of 8 columns, the lanes
// of a pair exchange two sums, so that four lanes have 16 columns of a row.
template <int kColumns, class Use>
__device__ void for_each_four(const Sums<1, kColumns>& sums, Use&& use) {
  const bool is_odd = threadIdx.x % 2 != 0;
  const int first_column = (is_odd ? 8 : 0) + static_cast<int>(threadIdx.x) % 4 / 2 * 4;
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int n = 0; n < kColumns / 8; n += 2) {
      const float *low = &sums.at[0][n][2 * r], *high = &sums.at[0][n + 1][2 * r];
      float got[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) got[i] = __shfl_xor_sync(0xffffffffu, is_odd ? low[i] : high[i], 1);
      use(sums.row_of(r), 8 * n + first_column,
          is_odd ? make_float4(got[0], got[1], high[0], high[1])
                 : make_float4(low[0], low[1], got[0], got[1]));
    }
}

template <class T>
__device__ float4 load_four_of(const T* from) {
  const Pack<T, 4> v = load<T, 4>(from);
  return {to_float(v.element[0]), to_float(v.element[1]), to_float(v.element[2]), to_float(v.element[3])};
}
template <class T>
__device__ void store_four(T* to, const float4& v) {
  store<T, 4>(to, {from_float<T>(v.x), from_float<T>(v.y), from_float<T>(v.z), from_float<T>(v.w)});
}
__device__ inline float4 operator+(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Writes a group's sums to c, from (row, column) on.
template <class T, class C, int kColumns>
__device__ void write_sums(const ProductArguments<T, C>& a, const Sums<1, kColumns>& sums, int row,
                           int column) {
  for_each_four(sums, [&](int r, int n, float4 v) {
    const int i = row + r, j = column + n;
    if (i >= a.rows || j >= a.columns) return;
    const int64_t at = i * a.stride + j;
    v = {a.alpha * v.x, a.alpha * v.y, a.alpha * v.z, a.alpha * v.w};
    if (a.bias) v = v + load_four_of(a.bias + j);
    if (a.addend) v = v + load_four_of(a.addend + at);
    store_four(a.c + at, v);
  });
}

template <class T, class C, bool kTransposeA, bool kTransposeB>
__global__ void __launch_bounds__(ProductTiles::kThreads, 1)
    gemm_sm90_kernel(const __grid_constant__ ProductArguments<T, C> a) {
  using Tiles = ProductTiles;
  using Stage = Stage<kTransposeA, kTransposeB>;
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ Ring<Tiles::kStages> ring;
  const uint32_t begin = first_tile(memory);
  const auto stage = [&](int use) { return Stage{begin + ring.stage(use) * Stage::kBytes}; };
  if (threadIdx.x == 0) {
    ring.init(1, Tiles::kConsumers * kGroupWarps);
    fence_barrier_init();
  }
  __syncthreads();
  int use = 0;  // of the ring, by all tiles of this block
  if (Tiles::copies()) {
    give_registers<Tiles::kOfCopier>();
    if (threadIdx.x % kGroup != 0) return;
    for (int tile = blockIdx.x; tile < a.order.count(); tile += gridDim.x) {
      const auto [row, column] = a.order.place(tile);
      const int m = row * Tiles::kRows, n = column * Tiles::kColumns;
#pragma unroll 1
      for (int t = 0; t < a.steps; ++t, ++use) {
        const int k = t * Tiles::kDepth;
        uint64_t* const full = &ring.full[ring.stage(use)];
        ring.wait_empty(use);
        arrive_and_expect(full, Stage::kBytes);
#pragma unroll
        for (int g = 0; g < Tiles::kConsumers; ++g) {
          const int first = m + g * kGroupRows;
          load_tile(stage(use).a(g), a.a, 0, kTransposeA ? k : first, full, kTransposeA ? first : k);
        }
        load_tile(stage(use).b(), a.b, 0, kTransposeB ? n : k, full, kTransposeB ? k : n);
      }
    }
    return;
  }
  take_registers<Tiles::kOfConsumer>();
  const int group = __shfl_sync(0xffffffffu, Tiles::group(), 0);
  const int warp = static_cast<int>(threadIdx.x) / kWarp % kGroupWarps;
  const bool speaks = threadIdx.x % kWarp == 0;  // this lane arrives for its warp
  for (int tile = blockIdx.x; tile < a.order.count(); tile += gridDim.x) {
    Sums<1, Tiles::kColumns> sums;
    fence_products(sums);
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t, ++use) {
      ring.wait_full(use);
      __syncwarp();
#pragma unroll
      for (int k = 0; k < Tiles::kDepth; k += 16)
        multiply<T, kTransposeA, !kTransposeB>(sums.flat(), stage(use).left(group, k), stage(use).right(k),
                                               true);
      commit_products();
      wait_for_products<1>();
      if (speaks && t > 0) ring.release(use - 1);
    }
    wait_for_products<0>(sums);
    if (speaks) ring.release(use - 1);
    const auto [row, column] = a.order.place(tile);
    write_sums(a, sums, row * Tiles::kRows + group * kGroupRows + warp * (kGroupRows / kGroupWarps),
               column * Tiles::kColumns);
  }
}

// The map for boxes of a matrix, `columns` columns and `rows` rows each.
CUtensorMap map_of(const Tensor& matrix, int64_t stride, int columns, int rows) {
  return map_of_boxes({.begin = matrix.data,
                       .dtype = matrix.dtype,
                       .extents = {matrix.shape[1], 1, matrix.shape[0]},
                       .strides = {stride, stride},
                       .columns = columns,
                       .rows = rows});
}

template <class T, class C, bool kTransposeA, bool kTransposeB>
void launch(Stream& stream, const Gemm& g) {
  using Stage = Stage<kTransposeA, kTransposeB>;
  constexpr int kRows = ProductTiles::kRows, kColumns = ProductTiles::kColumns, kDepth = ProductTiles::kDepth,
                kBytes = ProductTiles::kStages * Stage::kBytes + kTileAlignment;
  const auto tiles = [](int64_t extent, int size) { return static_cast<int>((extent + size - 1) / size); };
  const int64_t M = g.c.shape[0], N = g.c.shape[1], K = g.a.shape[kTransposeA ? 0 : 1];
  const GemmStrides strides = strides_of(g);
  const Tensor& addend = addend_of(g);
  const ProductArguments<T, C> arguments{
      .a = map_of(g.a, strides.a, Stage::A::kPanel, kGroupRows),
      .b = map_of(g.b, strides.b, Stage::B::kPanel, kTransposeB ? kColumns : kDepth),
      .order = {tiles(M, kRows), tiles(N, kColumns)},
      .steps = tiles(K, kDepth),
      .rows = static_cast<int>(M),
      .columns = static_cast<int>(N),
      .c = g.c.as<C>(),
      .addend = addend.empty() ? nullptr : addend.as<C>(),
      .bias = g.bias.empty() ? nullptr : g.bias.as<T>(),
      .stride = strides.c,
      .alpha = g.alpha};
  const auto kernel = gemm_sm90_kernel<T, C, kTransposeA, kTransposeB>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "cudaFuncSetAttribute");
  const int blocks = std::min(arguments.order.count(), product_multiprocessors(stream.device()));
  kernel<<<static_cast<unsigned>(blocks), ProductTiles::kThreads, kBytes, native(stream)>>>(arguments);
  check_launch(stream, "gemm");
}

// Whether each row of a matrix begins at a multiple of 16 bytes.
bool rows_are_aligned(const Tensor& matrix, int64_t stride) {
  return reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && stride * size_of(matrix.dtype) % 16 == 0;
}

}  // namespace

bool has_gemm_sm90() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == 9;
}

bool multiplies_on_sm90(const Gemm& g) {
  constexpr int64_t kMostExtent = int64_t{1} << 30;  // fits an int, with a tile more
  const auto [a, b, c] = strides_of(g);
  const auto fits = [](const Tensor& matrix) {
    return std::max(matrix.shape[0], matrix.shape[1]) <= kMostExtent;
  };
  return has_gemm_sm90() && size_of(g.a.dtype) == 2 && fits(g.a) && fits(g.b) &&
         g.c.size() <= int64_t{INT32_MAX} * ProductTiles::kRows && g.c.shape[1] % 8 == 0 &&
         rows_are_aligned(g.a, a) && rows_are_aligned(g.b, b) && rows_are_aligned(g.c, c) &&
         (g.addend.empty() || rows_are_aligned(g.addend, c)) &&
         (g.bias.empty() || reinterpret_cast<uintptr_t>(g.bias.data) % 16 == 0);
}

void gemm_sm90(Stream& stream, const Gemm& g) {
  const auto with = [&]<class T, class C>() {
    if (g.transpose_a)
      return g.transpose_b ? launch<T, C, true, true>(stream, g) : launch<T, C, true, false>(stream, g);
    g.transpose_b ? launch<T, C, false, true>(stream, g) : launch<T, C, false, false>(stream, g);
  };
  const auto to = [&]<class T>() {
    g.c.dtype == DType::f32 ? with.template operator()<T, float>() : with.template operator()<T, T>();
  };
  g.a.dtype == DType::bf16 ? to.template operator()<bf16>() : to.template operator()<f16>();
}

}  // namespace flatshard::cuda
