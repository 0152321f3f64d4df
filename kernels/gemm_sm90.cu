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
// The copier goes on while the groups write, so that their next tile begins at once. Sums over K have one
// order, whatever the number of rows, columns and blocks: a row of c depends on that row of a alone.

#include <algorithm>

#include "kernels/gates.cuh"
#include "kernels/gemm_sm90.h"
#include "kernels/tensor_copy.cuh"
#include "kernels/warpgroup.cuh"

namespace flatshard::cuda {
namespace {

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

// Four neighboring columns of a row.
struct Four {
  float at[4];

  template <class T>
  static __device__ Four from(const T* from) {
    const Pack<T, 4> v = load<T, 4>(from);
    return {to_float(v.element[0]), to_float(v.element[1]), to_float(v.element[2]), to_float(v.element[3])};
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
  __device__ void add(const Four& other) {
#pragma unroll
    for (int i = 0; i < 4; ++i) at[i] += other.at[i];
  }
};

// --- ends. A lane has all sums of four columns; in an end of halves, of four columns in each half of c.

// c = alpha sums + bias + addend.
template <class T, class C>
struct PlainEnd {
  static constexpr bool kHalves = false;
  C* c;
  const C* addend;  // null: none
  const T* bias;    // null: none
  int64_t stride;   // of c and the addend
  int columns;
  float alpha;

  __device__ void write(int row, int column, Four v) const {
    const int64_t at = row * stride + column;
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
  T *c, *y;
  const T* bias;  // null: none
  int64_t stride, y_stride;
  int columns;

  __device__ void write(int row, int column, Four gate, Four up) const {
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
  const T *gate, *up;
  T *dgate, *dup;
  int64_t stride;  // of all four
  int columns;

  __device__ void write(int row, int column, Four dy) const {
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

template <class End>
struct ProductArguments {
  CUtensorMap a, b;
  TileOrder order;
  int steps;  // of kDepth terms
  int rows;
  End end;

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

// Hands a group's sums to the end, from `row` on.
template <class End>
__device__ void end_tile(const ProductArguments<End>& a, const Sums<1, ProductTiles::kColumns>& sums, int row,
                         int tile) {
  constexpr int kGroups = (End::kHalves ? ProductTiles::kHalf : ProductTiles::kColumns) / 8;
  const Exchange<ProductTiles::kColumns> lanes{sums};
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int n = 0; n < kGroups; n += 2) {
      const int i = row + sums.row_of(r), j = a.first_column(tile, 0) + lanes.column(n);
      const bool exists = i < a.rows && j < a.end.columns;
      const Four v = lanes.four(r, n);
      if constexpr (End::kHalves) {
        const Four second = lanes.four(r, n + kGroups);
        if (exists) a.end.write(i, j, v, second);
      } else {
        if (exists) a.end.write(i, j, v);
      }
    }
}

template <class T, class End, bool kTransposeA, bool kTransposeB>
__global__ void __launch_bounds__(ProductTiles::kThreads, 1)
    gemm_sm90_kernel(const __grid_constant__ ProductArguments<End> a) {
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
      const int m = row * Tiles::kRows;
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
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int n = a.first_column(column, half);
          load_tile(stage(use).half_b(half), a.b, 0, kTransposeB ? n : k, full, kTransposeB ? k : n);
        }
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
    end_tile(a, sums, row * Tiles::kRows + group * kGroupRows + warp * (kGroupRows / kGroupWarps), column);
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

template <class T, bool kTransposeA, bool kTransposeB, class End>
void launch(Stream& stream, const Gemm& g, const End& end) {
  using Stage = Stage<kTransposeA, kTransposeB>;
  constexpr int kColumns = End::kHalves ? ProductTiles::kHalf : ProductTiles::kColumns,
                kBytes = ProductTiles::kStages * Stage::kBytes + kTileAlignment;
  const auto tiles = [](int64_t extent, int size) { return static_cast<int>((extent + size - 1) / size); };
  const int64_t M = g.c.shape[0], K = g.a.shape[kTransposeA ? 0 : 1];
  const GemmStrides strides = strides_of(g);
  const ProductArguments<End> arguments{
      .a = map_of(g.a, strides.a, Stage::A::kPanel, kGroupRows),
      .b = map_of(g.b, strides.b, Stage::B::kPanel, kTransposeB ? ProductTiles::kHalf : ProductTiles::kDepth),
      .order = {tiles(M, ProductTiles::kRows), tiles(end.columns, kColumns)},
      .steps = tiles(K, ProductTiles::kDepth),
      .rows = static_cast<int>(M),
      .end = end};
  const auto kernel = gemm_sm90_kernel<T, End, kTransposeA, kTransposeB>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "cudaFuncSetAttribute");
  const int blocks = std::min(arguments.order.count(), product_multiprocessors(stream.device()));
  kernel<<<static_cast<unsigned>(blocks), ProductTiles::kThreads, kBytes, native(stream)>>>(arguments);
  check_launch(stream, "gemm");
}

template <class T>
const T* bias_of(const Gemm& g) {
  return g.bias.empty() ? nullptr : g.bias.as<T>();
}

template <class T, class C>
void launch_plain(Stream& stream, const Gemm& g) {
  const Tensor& addend = addend_of(g);
  const PlainEnd<T, C> end{.c = g.c.as<C>(),
                           .addend = addend.empty() ? nullptr : addend.as<C>(),
                           .bias = bias_of<T>(g),
                           .stride = strides_of(g).c,
                           .columns = static_cast<int>(g.c.shape[1]),
                           .alpha = g.alpha};
  if (g.transpose_a)
    return g.transpose_b ? launch<T, true, true>(stream, g, end) : launch<T, true, false>(stream, g, end);
  g.transpose_b ? launch<T, false, true>(stream, g, end) : launch<T, false, false>(stream, g, end);
}

template <class T>
void launch_gated(Stream& stream, const Gemm& g) {
  const auto& f = std::get<SwigluForward>(g.end);
  visit_gate(f.function, [&]<class Of>() {
    launch<T, false, true>(stream, g,
                           GatedEnd<T, Of>{.c = g.c.as<T>(),
                                           .y = f.y.as<T>(),
                                           .bias = bias_of<T>(g),
                                           .stride = strides_of(g).c,
                                           .y_stride = f.y_stride ? f.y_stride : f.y.shape[1],
                                           .columns = static_cast<int>(f.y.shape[1])});
  });
}

template <class T>
void launch_gradient(Stream& stream, const Gemm& g) {
  const auto& f = std::get<SwigluBackward>(g.end);
  visit_gate(f.function, [&]<class Of>() {
    launch<T, false, false>(stream, g,
                            GradientEnd<T, Of>{.gate = f.gate.as<T>(),
                                               .up = f.up.as<T>(),
                                               .dgate = f.dgate.as<T>(),
                                               .dup = f.dup.as<T>(),
                                               .stride = f.row_stride ? f.row_stride : f.dy.shape[1],
                                               .columns = static_cast<int>(f.dy.shape[1])});
  });
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

bool ends_on_sm90(const Gemm& g) {
  const auto aligned = [](int64_t stride, const auto&... tensors) {
    return (rows_are_aligned(tensors, stride) && ...);
  };
  const bool is_bare = g.c.dtype == g.a.dtype && g.alpha == 1 && addend_of(g).empty() && !g.transpose_a;
  if (const auto* const gated = std::get_if<SwigluForward>(&g.end)) {
    const SwigluForward& f = *gated;
    const int64_t F = f.y.shape[-1];
    return is_bare && g.transpose_b && f.gate.data == g.c.data && g.c.shape[1] == 2 * F && F % 8 == 0 &&
           f.up.data == static_cast<char*>(g.c.data) + F * size_of(g.c.dtype) &&
           (f.row_stride ? f.row_stride : F) == strides_of(g).c && aligned(f.y_stride ? f.y_stride : F, f.y);
  }
  if (const auto* const gradient = std::get_if<SwigluBackward>(&g.end)) {
    const SwigluBackward& f = *gradient;
    return is_bare && !g.transpose_b && g.bias.empty() && f.dy.data == g.c.data &&
           f.dy.shape[-1] == g.c.shape[1] && strides_of(g).c == g.c.shape[1] &&
           aligned(f.row_stride ? f.row_stride : g.c.shape[1], f.gate, f.up, f.dgate, f.dup);
  }
  return std::holds_alternative<std::monostate>(g.end);
}

void gemm_sm90(Stream& stream, const Gemm& g) {
  const auto with = [&]<class T>() {
    if (std::holds_alternative<SwigluForward>(g.end)) return launch_gated<T>(stream, g);
    if (std::holds_alternative<SwigluBackward>(g.end)) return launch_gradient<T>(stream, g);
    g.c.dtype == DType::f32 ? launch_plain<T, float>(stream, g) : launch_plain<T, T>(stream, g);
  };
  g.a.dtype == DType::bf16 ? with.template operator()<bf16>() : with.template operator()<f16>();
}

}  // namespace flatshard::cuda
