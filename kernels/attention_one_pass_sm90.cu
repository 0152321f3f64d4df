// The backward pass of attention on sm_90 (Hopper) in one pass: a kernel that computes p and ds once for dq,
// dk and dv, so that a pair of tiles takes five products, where the two kernels of attention_backward_sm90.cu
// take seven.
//
// A block owns 128 keys of one key head, and sums their dk and dv in registers over all heads of the group.
// It visits tiles of queries from the last to the first that attends to its keys, and for each tile all
// heads. The dq of a tile is a sum over blocks, in fp32 in global memory: each block adds after the block
// before it in the document, which a count for each half of a tile tells. So the sum has one order, and the
// bits are the same in every run. A block waits only for blocks that began before it, since blocks take their
// keys from a counter: it ends with any number of resident blocks. The tiles of a block are the first ones of
// the block before it, which therefore stays ahead by one step.
//
//   head    tile             registers: dk, dv    p    dp   dq   operands
//     64    128 q x 128 k             32 + 32    64    64   32    32 + 32
//    128     64 q x 128 k             64 + 64    32    32   32    16 + 16
//
//   head    shared memory, KiB: k, v   q, do   terms   ds   dq
//     64                          32      64       2   32   64
//    128                          64      64       2   16   64
//
// A warpgroup computes 64 keys, with scores transposed: keys are rows. p and ds are left operands in
// registers for dv and dk; ds also goes to shared memory as rows of queries, since dq sums over the keys of
// both groups. Each group computes one half of dq: 64 queries, or 64 columns. It does so one step late, with
// ds of the last tile, while it computes exponentials of this one. The two groups therefore never wait for
// each other in step, and products of one cover the exponentials of the other:
//
//   group 0   S dQ | exp | dP | ds | dV dK S dQ | exp | dP ...
//   group 1          S dQ | exp | dP | ds | dV dK S dQ | exp ...
//   copier    q do (t+1) ......... q do (t+2) ...
//   adder     wait for the count, store or add a half of dq, count
//
// A kernel before it computes the terms of the queries and clears the counts. One after it rounds dq.
//
// Rows beyond a document's end belong to the next document. Their p are zero, like the p of masked pairs.

#include "kernels/attention_one_pass.h"
#include "kernels/attention_sm90.cuh"
#include "kernels/attention_sm90.h"
#include "kernels/attention_terms.cuh"

namespace flatshard::cuda {
namespace {

constexpr int kConsumers = 2, kHalves = static_cast<int>(kOnePassHalves);
constexpr int kHalfRows = kGroupRows, kHalfColumns = static_cast<int>(kOnePassColumns),
              kHalfRowBytes = kHalfColumns * 4;

// The sums of dq in global memory, and the counts of blocks.
template <int D>
struct QuerySums {
  static constexpr int kQueries = one_pass_tile_rows(D);
  static constexpr bool kSplitsQueries = kQueries == kHalves * kHalfRows;  // the halves are below each other
  float* dq;
  int* counts;      // how many blocks have added to each half of a tile; then how many have begun
  int rows, tiles;  // of a head

  // The first row of a half, and its first column, in its tile.
  static __device__ int row_of(int half) { return kSplitsQueries ? half * kHalfRows : 0; }
  static __device__ int column_of(int half) { return kSplitsQueries ? 0 : half * kHalfColumns; }
  // The sums of a half whose first row is `row` of the tensors.
  __device__ float* sums(int head, int half, int row) const {
    const int64_t plane = kSplitsQueries ? head : static_cast<int64_t>(head) * kHalves + half;
    return dq + (plane * rows + row) * kHalfColumns;
  }
  __device__ int* count(int head, int tile, int half) const {
    return counts + (static_cast<int64_t>(head) * tiles + tile) * kHalves + half;
  }
  __device__ int* begun(int heads) const { return count(heads, 0, 0); }
};

// Where a lane has the sums of a warp's 16 rows in a half, in bytes: two at a time, in each eight of columns.
// Eights are swizzled by the row, so that stores to shared memory have no bank conflicts.
struct LanePlaces {
  uint32_t first;

  __device__ explicit LanePlaces(int warp_row) {
    const uint32_t lane = threadIdx.x % kWarp, row = warp_row + lane / 4;
    first = row * kHalfRowBytes + row % 8 * 32 + lane % 4 * 8;
  }
  __device__ uint32_t of(int own_row, int eight) const {
    return (first ^ static_cast<uint32_t>(eight * 32)) + own_row * 8 * kHalfRowBytes;
  }
};

// --- terms

struct TermTiles {
  static constexpr int kThreads = 256, kRows = kThreads / 4, kBytes = 0;  // four threads per row of a head
};

template <class T>
struct TermArguments {
  HeadsView<T> grad_o, o;
  const float* lse;  // (Hq, rows)
  QueryTerms terms;
  int rows;
  int* counts;  // to clear
  int64_t count_of_counts;
};

template <class T>
__global__ void __launch_bounds__(TermTiles::kThreads) terms_kernel(const TermArguments<T> a) {
  const int row = slot_in_grid() * TermTiles::kRows + static_cast<int>(threadIdx.x) / 4,
            head = static_cast<int>(blockIdx.x);
  const bool exists = row < a.rows;
  const float dot = row_dot(a.grad_o, a.o, exists ? row : 0, head);
  if (exists && threadIdx.x % 4 == 0) {
    const int64_t at = static_cast<int64_t>(head) * a.rows + row;
    a.terms.lse[at] = base_2_lse(a.lse[at]);
    a.terms.delta[at] = dot;
  }
  const int64_t block = static_cast<int64_t>(slot_in_grid()) * gridDim.x + blockIdx.x,
                threads = static_cast<int64_t>(gridDim.x) * gridDim.y * gridDim.z * TermTiles::kThreads;
  for (int64_t i = block * TermTiles::kThreads + threadIdx.x; i < a.count_of_counts; i += threads)
    a.counts[i] = 0;
}

// --- dq, dk and dv

template <int D>
struct Tiles : Groups<kConsumers> {
  static constexpr int kQueries = QuerySums<D>::kQueries, kStages = 2, kBuffers = 2;
  using Keys = PanelTile<D, kGroupRows>;  // tile of one warpgroup
  using Queries = PanelTile<D, kQueries>;
  using Ds = PanelTile<kRows, kQueries>;  // rows of queries; a panel of 64 keys for each warpgroup
  static constexpr int kKeyBytes = 2 * kConsumers * Keys::kBytes, kTileBytes = 2 * Queries::kBytes,
                       kStageBytes = kTileBytes + 1024;  // a stage also holds the terms
  static_assert(2 * kQueries * 4 <= 1024);
  static constexpr int kHalfBytes = kHalfRows * kHalfRowBytes, kBufferBytes = kHalves * kHalfBytes;
  static constexpr int kBytes =
      kKeyBytes + kStages * kStageBytes + Ds::kBytes + kBuffers * kBufferBytes + kTileAlignment;

  uint32_t begin;
  __device__ Keys keys(int group) const { return {begin + group * Keys::kBytes}; }
  // 64 columns of a group's keys.
  __device__ PanelTile<kHalfColumns, kGroupRows> key_columns(int group, int column) const {
    return {keys(group).panel(column / Keys::kPanel)};
  }
  __device__ Keys values(int group) const { return keys(kConsumers + group); }
  __device__ Queries queries(int t) const { return {begin + kKeyBytes + t % kStages * kStageBytes}; }
  __device__ Queries grad_o(int t) const { return {queries(t).begin + Queries::kBytes}; }
  // The address of a tile's terms: kQueries values of lse, then as many of delta.
  __device__ uint32_t terms(int t) const { return queries(t).begin + kTileBytes; }
  __device__ Ds ds() const { return {begin + kKeyBytes + kStages * kStageBytes}; }
  // The address of a half of a tile's dq.
  __device__ uint32_t dq(int t, int half) const {
    return ds().begin + Ds::kBytes + t % kBuffers * kBufferBytes + half * kHalfBytes;
  }
};

template <int D>
struct Barriers {
  uint64_t copied;                       // keys and values
  Ring<Tiles<D>::kStages> queries;       // q, do and terms of a tile
  Ring<1> ds;                            // written and read by both groups
  Ring<Tiles<D>::kBuffers> dq[kHalves];  // from a group to its adder

  // To be called by one thread.
  __device__ void init() {
    init_barrier(&copied, 1);
    queries.init(2, kConsumers * kGroupWarps);
    ds.init(kConsumers * kGroupWarps, kConsumers * kGroupWarps);
    for (auto& half : dq) half.init(kGroupWarps, 1);
    fence_barrier_init();
  }
};

template <class T, int D>
struct Arguments {
  HeadsView<T> dk, dv;
  CUtensorMap map_q, map_grad_o, map_k, map_v;
  QueryTerms terms;
  QuerySums<D> sums;
  Mask mask;
  float scale, scale_log2;  // factors of the products, and to scores in base 2
};

// The block's rows of keys, and its steps: tiles of queries from the last to the first that attends to them,
// and for each tile the heads of a group.
template <int D>
struct KeyBlock {
  static constexpr int kQueries = Tiles<D>::kQueries;
  Visible visible;
  Span rows, all;  // rows, empty if the slot is empty; range of query tiles
  int document, number, key_head, first_head, first_row, steps;  // number: of the block in the document

  // Finds the rows of the block that is the `turn`th to begin: the longest blocks of all heads come first,
  // and the blocks of a document in the order of their keys. Called by a warp, for its first lane.
  __device__ void find(const Mask& mask, int turn) {
    const int key_heads = static_cast<int>(gridDim.x);
    const OwnRows own(mask, true, Tiles<D>::kRows, turn / key_heads);
    if (threadIdx.x % kWarp > 0) return;
    visible = own.visible, rows = own.rows, document = own.document, first_row = own.first_row;
    number = rows.begin / Tiles<D>::kRows;
    key_head = turn % key_heads;
    first_head = key_head * mask.group;
    all = visible.queries_of(rows).tiles(kQueries);
    steps = mask.group * all.size();
  }
  // The blocks before this one in the document that add to a tile.
  __device__ int earlier_blocks(int tile) const {
    const Span queries = visible.existing({tile * kQueries, (tile + 1) * kQueries});
    return number - visible.keys_of(queries).tiles(Tiles<D>::kRows).begin;
  }
};

// A step of a block: a tile of queries, and a head of the group.
struct Step {
  int tile, head = 0;

  template <int D>
  __device__ explicit Step(const KeyBlock<D>& block) : tile(block.all.end - 1) {}
  __device__ void advance(int group) {
    if (++head == group) head = 0, --tile;
  }
};

// Copies the block's keys and values, then all tiles of queries and their do; called by one thread.
template <class T, int D>
__device__ void copy_tiles(const Arguments<T, D>& a, const KeyBlock<D>& block, const Tiles<D>& tiles,
                           Barriers<D>& barriers) {
  if (block.steps == 0) return;
  arrive_and_expect(&barriers.copied, Tiles<D>::kKeyBytes);
  for (int g = 0; g < kConsumers; ++g) {
    const int row = block.first_row + g * kGroupRows;
    load_tile(tiles.keys(g), a.map_k, block.key_head, row, &barriers.copied);
    load_tile(tiles.values(g), a.map_v, block.key_head, row, &barriers.copied);
  }
  const int first = a.mask.queries.first_row(block.document);
  Step step(block);
#pragma unroll 1
  for (int t = 0; t < block.steps; ++t, step.advance(a.mask.group)) {
    uint64_t* full = &barriers.queries.full[barriers.queries.stage(t)];
    barriers.queries.wait_empty(t);
    arrive_and_expect(full, Tiles<D>::kTileBytes);
    const int head = block.first_head + step.head, row = first + step.tile * Tiles<D>::kQueries;
    load_tile(tiles.queries(t), a.map_q, head, row, full);
    load_tile(tiles.grad_o(t), a.map_grad_o, head, row, full);
  }
}

// Copies the terms of all tiles of queries; called by one warp.
template <class T, int D>
__device__ void copy_terms(const Arguments<T, D>& a, const KeyBlock<D>& block, const Tiles<D>& tiles,
                           Barriers<D>& barriers) {
  constexpr int kQueries = Tiles<D>::kQueries;
  const int first = a.mask.queries.first_row(block.document);
  Step step(block);
#pragma unroll 1
  for (int t = 0; t < block.steps; ++t, step.advance(a.mask.group)) {
    const int query = step.tile * kQueries;
    const int64_t from =
        static_cast<int64_t>(block.first_head + step.head) * a.mask.queries.rows + first + query;
    barriers.queries.wait_empty(t);
    copy_terms_of_tile<kQueries>(a.terms, from, block.visible.queries - query, tiles.terms(t));
    __syncwarp();
    if (threadIdx.x % kWarp == 0) arrive(&barriers.queries.full[barriers.queries.stage(t)]);
  }
}

// Adds a group's half of dq of all tiles to the sums, each after the earlier blocks of the document; called
// by one thread. The first block stores, so that nothing need be cleared.
template <class T, int D>
__device__ void add_dq(const Arguments<T, D>& a, const KeyBlock<D>& block, const Tiles<D>& tiles,
                       Barriers<D>& barriers, int half) {
  constexpr int kQueries = Tiles<D>::kQueries;
  const int first_row = a.mask.queries.first_row(block.document),
            first_tile = first_row / kQueries + block.document;
  Step step(block);
#pragma unroll 1
  for (int t = 0; t < block.steps; ++t, step.advance(a.mask.group)) {
    const int head = block.first_head + step.head, row = step.tile * kQueries + QuerySums<D>::row_of(half);
    const int earlier = block.earlier_blocks(step.tile),
              bytes = max(0, min(kHalfRows, block.visible.queries - row)) * kHalfRowBytes;
    float* const sums = a.sums.sums(head, half, first_row + row);
    int* const count = a.sums.count(head, first_tile + step.tile, half);
    barriers.dq[half].wait_full(t);
    while (load_acquire(count) != earlier) {
    }
    fence_pieces();
    if (earlier == 0)
      store_piece(sums, tiles.dq(t, half), bytes);
    else
      add_piece(sums, tiles.dq(t, half), bytes);
    commit_pieces();
    wait_for_reads();
    barriers.dq[half].release(t);
    wait_for_pieces();
    fence_pieces();
    add_release(count, 1);
  }
}

// A warpgroup that computes, and its 64 keys.
template <class T, int D>
struct KeyGroup {
  using Shared = Tiles<D>;
  static constexpr int kQueries = Shared::kQueries;
  using Scores = Sums<1, kQueries>;
  using HalfOfDq = Sums<1, kHalfColumns>;
  using Operand = uint32_t[kQueries / 16][4];

  const Arguments<T, D>& a;
  const KeyBlock<D>& block;
  const Shared& tiles;
  Barriers<D>& barriers;
  int group, warp, lane;
  LaneSpans visible;

  // The row in the group of the warp's first key.
  __device__ int warp_row() const { return warp * kPieceRows; }

  // Starts the products of the group's half of dq with the ds that both groups have written.
  __device__ void multiply_dq(HalfOfDq& dq) const {
    fence_products();
#pragma unroll
    for (int k = 0; k < Shared::kRows; k += 16)
      multiply<T, true>(
          dq.flat(), tiles.ds().along(QuerySums<D>::row_of(group), k),
          tiles.key_columns(k / kGroupRows, QuerySums<D>::column_of(group)).down(k % kGroupRows), k > 0);
    commit_products();
  }

  // Gives the half to the adder.
  __device__ void pass_dq(const HalfOfDq& dq, int t) const {
    Ring<Shared::kBuffers>& ring = barriers.dq[group];
    ring.wait_empty(t);
    __syncwarp();
    LanePlaces places(warp_row());
    places.first += tiles.dq(t, group);
#pragma unroll
    for (int own_row = 0; own_row < 2; ++own_row)
#pragma unroll
      for (int n = 0; n < kHalfColumns / 8; ++n) {
        const float* two = &dq.at[0][n][2 * own_row];
        store_shared(places.of(own_row, n), make_float2(two[0], two[1]));
      }
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) arrive(&ring.full[ring.stage(t)]);
  }

  // Turns scores into p.
  __device__ void exponentiate(Scores& p, int t, int tile_index) const {
    const Span tile{tile_index * kQueries, (tile_index + 1) * kQueries};
    if (!visible.cover(tile))
      p.for_each([&](const auto& at) {
        if (!visible.of[at.own_row].holds(tile.begin + at.column)) p[at] = -INFINITY;
      });
    const uint32_t terms = tiles.terms(t) + p.column_of(0) * 4;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
      const float2 lse = load_two(terms + n * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* s = &p.at[0][n][2 * half];
        s[0] = exp2_of(fmaf(s[0], a.scale_log2, -lse.x));
        s[1] = exp2_of(fmaf(s[1], a.scale_log2, -lse.y));
      }
    }
  }

  // Rounds p and ds = p (dp - delta), as left operands.
  __device__ void round(Operand& of_p, Operand& of_ds, const Scores& p, const Scores& dp, int t) const {
    const uint32_t deltas = tiles.terms(t) + kQueries * 4 + p.column_of(0) * 4;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
      const float2 delta = load_two(deltas + n * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float *s = &p.at[0][n][2 * half], *d = &dp.at[0][n][2 * half];
        of_ds[n / 2][n % 2 * 2 + half] = pack<T>(s[0] * (d[0] - delta.x), s[1] * (d[1] - delta.y));
        of_p[n / 2][n % 2 * 2 + half] = pack<T>(s[0], s[1]);
      }
    }
  }

  // Writes ds as rows of queries, for the products of dq of both groups.
  __device__ void share(const Operand& of_ds, int t) const {
    barriers.ds.wait_empty(t);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kQueries / 16; ++n)
      store_pieces_transposed(
          tiles.ds().at(16 * n + lane / 16 * 8 + lane % 8, group * 8 + warp * 2 + lane / 8 % 2), of_ds[n]);
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) arrive(&barriers.ds.full[0]);
  }

  // Without a step it runs to the end of the loop all the same: ptxas serializes the products of a loop that
  // a return passes by.
  __device__ void compute(Sums<1, D>& dk, Sums<1, D>& dv) const {
    if (block.steps > 0) wait(&barriers.copied, 0);
    Operand of_p, of_ds;
    Step step(block);
#pragma unroll 1
    for (int t = 0; t < block.steps; ++t, step.advance(a.mask.group)) {
      Scores p{typename Scores::Unset{}};
      barriers.queries.wait_full(t);
      __syncwarp();
      fence_products();
      multiply_along<T>(p, tiles.keys(group), tiles.queries(t));
      commit_products();
      if (t > 0) {
        wait_for_products<1>(dk, dv, of_p, of_ds);
        if (lane == 0) barriers.queries.release(t - 1);
        barriers.ds.wait_full(t - 1);
        __syncwarp();
        HalfOfDq dq{typename HalfOfDq::Unset{}};
        multiply_dq(dq);
        wait_for_products<1>(p);
        exponentiate(p, t, step.tile);
        wait_for_products<0>(dq);
        if (lane == 0) barriers.ds.release(t - 1);
        pass_dq(dq, t - 1);
      } else {
        wait_for_products<0>(p);
        exponentiate(p, t, step.tile);
      }
      Scores dp{typename Scores::Unset{}};
      fence_products();
      multiply_along<T>(dp, tiles.values(group), tiles.grad_o(t));
      commit_products();
      wait_for_products<0>(dp);
      round(of_p, of_ds, p, dp, t);
      fence_products(dv, of_p);
      multiply_down<T>(dv, of_p, tiles.grad_o(t));
      share(of_ds, t);
      fence_products(dk, of_ds);
      multiply_down<T>(dk, of_ds, tiles.queries(t));
      commit_products();
    }
    wait_for_products<0>(dk, dv, of_ds);
    if (block.steps == 0) return;
    barriers.ds.wait_full(block.steps - 1);
    __syncwarp();
    HalfOfDq dq{typename HalfOfDq::Unset{}};
    multiply_dq(dq);
    wait_for_products<0>(dq);
    pass_dq(dq, block.steps - 1);
  }
};

template <class T, int D>
__global__ void __launch_bounds__(Tiles<D>::kThreads, 1)
    one_pass_kernel(const __grid_constant__ Arguments<T, D> a) {
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ Barriers<D> barriers;
  __shared__ KeyBlock<D> block;  // where it takes no registers
  if (threadIdx.x < kWarp) {
    int turn = 0;
    if (threadIdx.x == 0) {
      barriers.init();
      turn = atomicAdd(a.sums.begun(a.mask.group * static_cast<int>(gridDim.x)), 1);
    }
    block.find(a.mask, __shfl_sync(0xffffffffu, turn, 0));
  }
  __syncthreads();
  if (block.rows.size() == 0) return;
  const Tiles<D> tiles{.begin = first_tile(memory)};
  if (Tiles<D>::copies()) {
    give_registers<Tiles<D>::kOfCopier>();
    const int thread = threadIdx.x % kGroup, warp = thread / kWarp;
    if (warp == 0 && thread == 0) copy_tiles(a, block, tiles, barriers);
    if (warp == 1) copy_terms(a, block, tiles, barriers);
    if (warp >= 2 && thread % kWarp == 0) add_dq(a, block, tiles, barriers, warp - 2);
    return;
  }
  take_registers<Tiles<D>::kOfConsumer>();
  Sums<1, D> dk, dv;
  const int group = __shfl_sync(0xffffffffu, Tiles<D>::group(), 0),
            warp = static_cast<int>(threadIdx.x) / kWarp % kGroupWarps;
  const int group_row = warp * kPieceRows, own_begin = block.rows.begin + group * kGroupRows + group_row;
  const LaneSpans visible{block.visible.queries_of(own_begin + dk.row_of(0)),
                          block.visible.queries_of(own_begin + dk.row_of(1))};
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  KeyGroup<T, D>{a, block, tiles, barriers, group, warp, lane, visible}.compute(dk, dv);
  dk.scale(a.scale);
  const int own_row = block.first_row + group * kGroupRows + group_row,
            count = block.visible.keys - own_begin;
  // dv is written through the memory of the group's values, which its products have read; dk through the
  // memory of its keys, which the products of both groups have read.
  sync_barrier(1, kConsumers * kGroup);
  write_rows(dv, SwizzledTile<T, D>{tiles.values(group).begin}, group_row, a.dv, own_row, block.key_head, 0,
             count);
  write_rows(dk, SwizzledTile<T, D>{tiles.keys(group).begin}, group_row, a.dk, own_row, block.key_head, 0,
             count);
}

// --- dq, rounded

template <class T, int D>
struct RoundingTiles {
  static constexpr int kThreads = kHalves * kGroup, kRows = Tiles<D>::kQueries;
  static constexpr int kBytes = SwizzledTile<T, D>::bytes(kRows);
};

template <class T, int D>
struct RoundingArguments {
  HeadsView<T> dq;
  QuerySums<D> sums;
  Mask mask;
  float scale;
};

// A block rounds a tile of one head. A thread has the sums that it had in one_pass_kernel.
template <class T, int D>
__global__ void __launch_bounds__(RoundingTiles<T, D>::kThreads)
    rounding_kernel(const RoundingArguments<T, D> a) {
  extern __shared__ __align__(128) uint4 memory[];
  const OwnRows own(a.mask, false, RoundingTiles<T, D>::kRows);
  if (own.rows.size() == 0) return;
  const int head = static_cast<int>(blockIdx.x), half = static_cast<int>(threadIdx.x) / kGroup;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp % kGroupWarps * kPieceRows;
  const int first_row = QuerySums<D>::row_of(half), count = own.rows.size() - first_row - warp_row;
  Sums<1, kHalfColumns> dq;
  // No block has stored the dq of tiles that attend to no key.
  const bool stored = own.visible.keys_of(own.rows).size() > 0;
  const LanePlaces places(warp_row);
  const auto* from = reinterpret_cast<const char*>(a.sums.sums(head, half, own.first_row + first_row));
#pragma unroll
  for (int own_row = 0; own_row < 2; ++own_row) {
    const bool exists = stored && dq.row_of(own_row) < count;
#pragma unroll
    for (int n = 0; n < kHalfColumns / 8; ++n) {
      const float2 two = exists ? *reinterpret_cast<const float2*>(from + places.of(own_row, n)) : float2{};
      dq.at[0][n][2 * own_row] = two.x, dq.at[0][n][2 * own_row + 1] = two.y;
    }
  }
  dq.scale(a.scale);
  write_rows(dq, SwizzledTile<T, D>{shared_address(memory)}, first_row + warp_row, a.dq,
             own.first_row + first_row + warp_row, head, QuerySums<D>::column_of(half), count);
}

template <class T, int D>
void run(Stream& stream, const AttentionBackward& a, const QueryTerms& terms, const OnePassScratch& scratch) {
  const Mask mask = mask_of(a.mask, a.q, a.k);
  const QuerySums<D> sums{scratch.dq.as<float>(), scratch.counts.as<int32_t>(), mask.queries.rows,
                          static_cast<int>((scratch.counts.size() - 1) / kHalves / a.q.count)};
  // Terms do not depend on documents: the rows are cut as those of one.
  launch<TermTiles>(stream, "attention_backward: terms", terms_kernel<T>,
                    {mask.queries.boundaries, 1, mask.queries.rows}, a.q.count,
                    TermArguments<T>{.grad_o = view<T>(a.grad_o),
                                     .o = view<T>(a.o),
                                     .lse = a.lse.as<float>(),
                                     .terms = terms,
                                     .rows = mask.queries.rows,
                                     .counts = sums.counts,
                                     .count_of_counts = scratch.counts.size()});
  using Tiled = Tiles<D>;
  launch<Tiled>(stream, "attention_backward: dq, dk, dv", one_pass_kernel<T, D>, mask.keys, a.k.count,
                Arguments<T, D>{.dk = view<T>(a.dk),
                                .dv = view<T>(a.dv),
                                .map_q = map_of_heads(a.q, Tiled::kQueries, Tiled::Queries::kPanel),
                                .map_grad_o = map_of_heads(a.grad_o, Tiled::kQueries, Tiled::Queries::kPanel),
                                .map_k = map_of_heads(a.k, kGroupRows, Tiled::Keys::kPanel),
                                .map_v = map_of_heads(a.v, kGroupRows, Tiled::Keys::kPanel),
                                .terms = terms,
                                .sums = sums,
                                .mask = mask,
                                .scale = a.scale,
                                .scale_log2 = a.scale * kLog2e});
  launch<RoundingTiles<T, D>>(
      stream, "attention_backward: dq", rounding_kernel<T, D>, mask.queries, a.q.count,
      RoundingArguments<T, D>{.dq = view<T>(a.dq), .sums = sums, .mask = mask, .scale = a.scale});
}

}  // namespace

void attention_one_pass_sm90(Stream& stream, const AttentionBackward& a, const Tensor& terms,
                             const OnePassScratch& scratch) {
  const auto with = [&]<class T>() {
    a.q.head_size() <= 64 ? run<T, 64>(stream, a, query_terms(terms), scratch)
                          : run<T, 128>(stream, a, query_terms(terms), scratch);
  };
  a.q.of.dtype == DType::bf16 ? with.template operator()<bf16>() : with.template operator()<f16>();
}

}  // namespace flatshard::cuda
