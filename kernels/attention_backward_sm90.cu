// The backward pass of attention on sm_90 (Hopper): the two kernels of attention_backward.cu, each of which
// owns what it writes, with warpgroup products and tensor copies. Two warpgroups compute 64 rows each, with p
// and ds as left operands in registers. Heads of more than 128 would take more registers than a thread has.
//
//             head    tile               registers: sums, products, operands   shared memory
//   dq          64    128 q x 128 k           32   64 + 64   16 + 16 + 32      32 + 4 x 32 = 160 KiB
//               96    128 q x  64 k           48   32 + 32   24 + 24 + 16      48 + 4 x 24 = 144 KiB
//              128    128 q x  64 k           64   32 + 32   32 + 32 + 16      64 + 4 x 32 = 192 KiB
//   dk, dv      64    128 k x 128 q      32 + 32   64 + 64   32 + 32           32 + 3 x 33 = 131 KiB
//               96    128 k x  64 q      48 + 48   32 + 32   16 + 16           48 + 3 x 25 = 123 KiB
//              128    128 k x  64 q      64 + 64   32 + 32   16 + 16           64 + 3 x 33 = 163 KiB
//
// A warpgroup waits for its last products before it begins the next tile; the other one multiplies meanwhile:
//
//   copier      k v 0 | k v 1 | k v 2 | ...
//   group 0     q k0, do v0 | p, ds | ds k0      | q k1, do v1 | p, ds | ds k1  ...
//   group 1         q k0, do v0 | p, ds  | ds k0     | q k1, do v1 | p, ds  | ds k1  ...
//
// Rows beyond a document's end belong to the next document. Their p are zero, like the p of masked pairs.

#include "kernels/attention_sm90.cuh"
#include "kernels/attention_sm90.h"
#include "kernels/attention_terms.cuh"

namespace flatshard::cuda {
namespace {

constexpr int kConsumers = 2;

// Computes p, and the slope of a soft cap, which is a factor of ds = p (dp - delta) slope. kCaps tells
// whether there is one: a test at each score would take as long as the cap.
template <class T, bool kCaps>
struct Scores {
  ScoreCap<T> cap;
  float scale_log2;  // factor to scores in base 2; 1 with a soft cap

  // Makes scores of products.
  template <int N>
  __device__ void finish(Sums<1, N>& products, const LaneSpans& visible, const Span& tile) const {
    if constexpr (kCaps) products.for_each([&](const auto& at) { products[at] = cap.score(products[at]); });
    mask_scores(products, visible, tile);
  }
  __device__ float slope(float score) const {
    if constexpr (kCaps) return cap.slope(score);
    return 1.0f;
  }
  __device__ float p(float score, float lse) const { return exp2_of(fmaf(score, scale_log2, -lse)); }
};

// --- dq

template <int D>
struct QueryGradientTiles : Groups<kConsumers> {
  static constexpr int kWarpRows = kPieceRows, kKeys = D <= 64 ? 128 : 64, kStages = 4;
  using Queries = PanelTile<D, kGroupRows>;  // tile of one warpgroup
  using Keys = PanelTile<D, kKeys>;
  static constexpr int kQueryBytes = 2 * kConsumers * Queries::kBytes, kStageBytes = 2 * Keys::kBytes;
  static constexpr int kBytes = kQueryBytes + kStages * kStageBytes + kTileAlignment;

  uint32_t begin;
  __device__ Queries queries(int group) const { return {begin + group * Queries::kBytes}; }
  __device__ Queries grad_o(int group) const { return queries(kConsumers + group); }
  __device__ Keys keys(int t) const { return {begin + kQueryBytes + t % kStages * kStageBytes}; }
  __device__ Keys values(int t) const { return {keys(t).begin + Keys::kBytes}; }
};

template <class T, bool kCaps>
struct QueryGradientArguments {
  HeadsView<T> dq, grad_o, o;
  CUtensorMap map_q, map_grad_o, map_k, map_v;
  const float* lse;  // (Hq, rows)
  QueryTerms terms;
  Mask mask;
  Scores<T, kCaps> scores;
  float scale;  // factor of the products
};

// Loads the left operand of products: the 16 rows of a warp.
template <int D>
__device__ void load_operand(uint32_t (&a)[D / 16][4], const PanelTile<D, kGroupRows>& tile, int first_row) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int d = 0; d < D / 16; ++d) load_pieces(a[d], tile.at(first_row + lane % 16, 2 * d + lane / 16));
}

template <class T, int D, bool kCaps>
__global__ void __launch_bounds__(QueryGradientTiles<D>::kThreads, 1)
    query_gradient_sm90_kernel(const __grid_constant__ QueryGradientArguments<T, kCaps> a) {
  using Tiles = QueryGradientTiles<D>;
  constexpr int kKeys = Tiles::kKeys;
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ uint64_t copied;
  __shared__ Ring<Tiles::kStages> ring;
  const QueryBlock<Tiles> block(a.mask);
  if (block.rows.size() == 0) return;
  const Tiles tiles{.begin = first_tile(memory)};
  const Span all = block.seen();
  const int first = all.begin, count = all.size();
  if (threadIdx.x == 0) {
    init_barrier(&copied, 1);
    ring.init(1, kConsumers * kGroupWarps);
    fence_barrier_init();
  }
  __syncthreads();
  if (Tiles::copies()) {
    give_registers<Tiles::kOfCopier>();
    if (threadIdx.x % kGroup > 0 || count == 0) return;
    arrive_and_expect(&copied, Tiles::kQueryBytes);
    for (int g = 0; g < kConsumers; ++g) {
      load_tile(tiles.queries(g), a.map_q, block.head, block.first_row + g * kGroupRows, &copied);
      load_tile(tiles.grad_o(g), a.map_grad_o, block.head, block.first_row + g * kGroupRows, &copied);
    }
    const int row = a.mask.keys.first_row(block.document) + first * kKeys;
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      uint64_t* full = &ring.full[ring.stage(t)];
      ring.wait_empty(t);
      arrive_and_expect(full, Tiles::kStageBytes);
      load_tile(tiles.keys(t), a.map_k, block.key_head, row + t * kKeys, full);
      load_tile(tiles.values(t), a.map_v, block.key_head, row + t * kKeys, full);
    }
    return;
  }
  take_registers<Tiles::kOfConsumer>();
  Sums<1, D> dq;
  const LaneTerms<2> terms(block, a.grad_o, a.o, a.lse, a.terms, a.mask.queries.rows);
  const int own_begin = block.own().begin, group_row = block.warp_row % kGroupRows, group = Tiles::group();
  const LaneSpans visible{block.visible.keys_of(own_begin + dq.row_of(0)),
                          block.visible.keys_of(own_begin + dq.row_of(1))};
  if (count > 0) {
    uint32_t q[D / 16][4], grad_o[D / 16][4], operand[kKeys / 16][4];
    wait(&copied, 0);
    __syncwarp();
    load_operand<D>(q, tiles.queries(group), group_row);
    load_operand<D>(grad_o, tiles.grad_o(group), group_row);
    for (int t = 0; t < count; ++t) {
      Sums<1, kKeys> scores{typename Sums<1, kKeys>::Unset{}}, dp{typename Sums<1, kKeys>::Unset{}};
      ring.wait_full(t);
      __syncwarp();
      fence_products(q, grad_o);
      multiply_along<T, D>(scores, q, tiles.keys(t));
      commit_products();
      multiply_along<T, D>(dp, grad_o, tiles.values(t));
      commit_products();
      wait_for_products<1>(scores);
      a.scores.finish(scores, visible, {(first + t) * kKeys, (first + t + 1) * kKeys});
      wait_for_products<0>(dp, q, grad_o);
      scores.for_each([&](const auto& at) {
        const float p = a.scores.p(scores[at], terms.lse[at.own_row]);
        scores[at] = p * (dp[at] - terms.delta[at.own_row]) * a.scores.slope(scores[at]);
      });
      round_to<T>(operand, scores);
      fence_products(dq, operand);
      multiply_down<T>(dq, operand, tiles.keys(t));
      commit_products();
      wait_for_products<0>(dq, operand);
      if (threadIdx.x % kWarp == 0) ring.release(t);
    }
  }
  dq.scale(a.scale);
  // dq is written through the memory of the group's queries, which all of its warps have read.
  sync_barrier(1 + group, kGroup);
  write_rows(dq, SwizzledTile<T, D>{tiles.queries(group).begin}, group_row, a.dq, block.own_row(), block.head,
             0, block.own_count());
}

// --- dk, dv

template <int D>
struct KeyGradientTiles : Groups<kConsumers> {
  static constexpr int kQueries = D <= 64 ? 128 : 64, kStages = 3;
  using Keys = PanelTile<D, kGroupRows>;  // tile of one warpgroup
  using Queries = PanelTile<D, kQueries>;
  static constexpr int kKeyBytes = 2 * kConsumers * Keys::kBytes, kTileBytes = 2 * Queries::kBytes,
                       kStageBytes = kTileBytes + 1024;  // a stage also holds the terms
  static_assert(2 * kQueries * 4 <= 1024);
  static constexpr int kBytes = kKeyBytes + kStages * kStageBytes + kTileAlignment;

  uint32_t begin;
  __device__ Keys keys(int group) const { return {begin + group * Keys::kBytes}; }
  __device__ Keys values(int group) const { return keys(kConsumers + group); }
  __device__ Queries queries(int t) const { return {begin + kKeyBytes + t % kStages * kStageBytes}; }
  __device__ Queries grad_o(int t) const { return {queries(t).begin + Queries::kBytes}; }
  // The address of a tile's terms: kQueries values of lse, then as many of delta.
  __device__ uint32_t terms(int t) const { return queries(t).begin + kTileBytes; }
};

template <class T, bool kCaps>
struct KeyGradientArguments {
  HeadsView<T> dk, dv;
  CUtensorMap map_q, map_grad_o, map_k, map_v;
  QueryTerms terms;
  Mask mask;
  Scores<T, kCaps> scores;
  float scale;  // factor of the products
};

// The block's rows of keys, and the tiles of queries that attend to them: first all of one head, then of the
// next.
template <int D>
struct KeyBlock : OwnRows {
  using Tiles = KeyGradientTiles<D>;
  Span all;  // range of query tiles
  int key_head, group, steps;

  __device__ explicit KeyBlock(const Mask& mask)
      : OwnRows(mask, true, Tiles::kRows),
        all(visible.queries_of(rows).tiles(Tiles::kQueries)),
        key_head(blockIdx.x),
        group(mask.group),
        steps(group * all.size()) {}
  __device__ int head(int step) const { return key_head * group + step / all.size(); }
  // The index in the document of the tile's first query.
  __device__ int query(int step) const { return (all.begin + step % all.size()) * Tiles::kQueries; }
};

// Copies all tiles of queries and their do; called by one thread.
template <class T, int D, bool kCaps>
__device__ void copy_tiles(const KeyGradientArguments<T, kCaps>& a, const KeyBlock<D>& block,
                           const KeyGradientTiles<D>& tiles, uint64_t* copied,
                           Ring<KeyGradientTiles<D>::kStages>& ring) {
  using Tiles = KeyGradientTiles<D>;
  arrive_and_expect(copied, Tiles::kKeyBytes);
  for (int g = 0; g < kConsumers; ++g) {
    load_tile(tiles.keys(g), a.map_k, block.key_head, block.first_row + g * kGroupRows, copied);
    load_tile(tiles.values(g), a.map_v, block.key_head, block.first_row + g * kGroupRows, copied);
  }
  const int first = a.mask.queries.first_row(block.document);
#pragma unroll 1
  for (int t = 0; t < block.steps; ++t) {
    const int row = first + block.query(t), head = block.head(t);
    uint64_t* full = &ring.full[ring.stage(t)];
    ring.wait_empty(t);
    arrive_and_expect(full, Tiles::kTileBytes);
    load_tile(tiles.queries(t), a.map_q, head, row, full);
    load_tile(tiles.grad_o(t), a.map_grad_o, head, row, full);
  }
}

// Copies the terms of all tiles of queries; called by one warp.
template <class T, int D, bool kCaps>
__device__ void copy_terms(const KeyGradientArguments<T, kCaps>& a, const KeyBlock<D>& block,
                           const KeyGradientTiles<D>& tiles, Ring<KeyGradientTiles<D>::kStages>& ring) {
  constexpr int kQueries = KeyGradientTiles<D>::kQueries;
  const int first = a.mask.queries.first_row(block.document);
#pragma unroll 1
  for (int t = 0; t < block.steps; ++t) {
    const int query = block.query(t);
    const int64_t from = static_cast<int64_t>(block.head(t)) * a.mask.queries.rows + first + query;
    ring.wait_empty(t);
    copy_terms_of_tile<kQueries>(a.terms, from, block.visible.queries - query, tiles.terms(t));
    __syncwarp();
    if (threadIdx.x % kWarp == 0) arrive(&ring.full[ring.stage(t)]);
  }
}

template <class T, int D, bool kCaps>
__global__ void __launch_bounds__(KeyGradientTiles<D>::kThreads, 1)
    key_gradient_sm90_kernel(const __grid_constant__ KeyGradientArguments<T, kCaps> a) {
  using Tiles = KeyGradientTiles<D>;
  constexpr int kQueries = Tiles::kQueries;
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ uint64_t copied;
  __shared__ Ring<Tiles::kStages> ring;
  const KeyBlock<D> block(a.mask);
  if (block.rows.size() == 0) return;
  const Tiles tiles{.begin = first_tile(memory)};
  if (threadIdx.x == 0) {
    init_barrier(&copied, 1);
    ring.init(2, kConsumers * kGroupWarps);
    fence_barrier_init();
  }
  __syncthreads();
  if (Tiles::copies()) {
    give_registers<Tiles::kOfCopier>();
    const int thread = threadIdx.x % kGroup;
    if (thread == 0 && block.steps > 0) copy_tiles(a, block, tiles, &copied, ring);
    if (thread / kWarp == 1) copy_terms(a, block, tiles, ring);
    return;
  }
  take_registers<Tiles::kOfConsumer>();
  Sums<1, D> dk, dv;
  const int group = Tiles::group(), group_row = threadIdx.x / kWarp % kGroupWarps * kPieceRows;
  const int own_begin = block.rows.begin + group * kGroupRows + group_row;
  const LaneSpans visible{block.visible.queries_of(own_begin + dk.row_of(0)),
                          block.visible.queries_of(own_begin + dk.row_of(1))};
  if (block.steps > 0) wait(&copied, 0);
  for (int t = 0; t < block.steps; ++t) {
    Sums<1, kQueries> p{typename Sums<1, kQueries>::Unset{}}, ds{typename Sums<1, kQueries>::Unset{}};
    ring.wait_full(t);
    __syncwarp();
    fence_products();
    multiply_along<T>(p, tiles.keys(group), tiles.queries(t));
    commit_products();
    multiply_along<T>(ds, tiles.values(group), tiles.grad_o(t));
    commit_products();
    wait_for_products<1>(p);
    a.scores.finish(p, visible, {block.query(t), block.query(t) + kQueries});
    wait_for_products<0>(ds);
    const uint32_t terms = tiles.terms(t) + p.column_of(0) * 4;
    uint32_t of_p[kQueries / 16][4], of_ds[kQueries / 16][4];  // p and ds, rounded
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
      const float2 lse = load_two(terms + n * 32), delta = load_two(terms + n * 32 + kQueries * 4);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* scores = &p.at[0][n][2 * half];
        const float* dp = &ds.at[0][n][2 * half];
        const float2 probability{a.scores.p(scores[0], lse.x), a.scores.p(scores[1], lse.y)};
        of_p[n / 2][n % 2 * 2 + half] = pack<T>(probability.x, probability.y);
        of_ds[n / 2][n % 2 * 2 + half] =
            pack<T>(probability.x * (dp[0] - delta.x) * a.scores.slope(scores[0]),
                    probability.y * (dp[1] - delta.y) * a.scores.slope(scores[1]));
      }
    }
    fence_products(dk, dv, of_p, of_ds);
    multiply_down<T>(dv, of_p, tiles.grad_o(t));
    multiply_down<T>(dk, of_ds, tiles.queries(t));
    commit_products();
    wait_for_products<0>(dk, dv, of_p, of_ds);
    if (threadIdx.x % kWarp == 0) ring.release(t);
  }
  dk.scale(a.scale);
  const int own_row = block.first_row + group * kGroupRows + group_row,
            count = block.visible.keys - own_begin;
  // dk and dv are written through the memory of the group's keys and values, which all of its products have
  // read.
  sync_barrier(1 + group, kGroup);
  write_rows(dk, SwizzledTile<T, D>{tiles.keys(group).begin}, group_row, a.dk, own_row, block.key_head, 0,
             count);
  write_rows(dv, SwizzledTile<T, D>{tiles.values(group).begin}, group_row, a.dv, own_row, block.key_head, 0,
             count);
}

template <class T, int D, bool kCaps>
void launch_both(Stream& stream, const AttentionBackward& a, const QueryTerms& terms) {
  const Mask mask = mask_of(a.mask, a.q, a.k);
  const Scores<T, kCaps> scores{score_cap<T>(a.softcap, a.scale), kCaps ? 1.0f : a.scale * kLog2e};
  {
    using Tiles = QueryGradientTiles<D>;
    const QueryGradientArguments<T, kCaps> arguments{
        .dq = view<T>(a.dq),
        .grad_o = view<T>(a.grad_o),
        .o = view<T>(a.o),
        .map_q = map_of_heads(a.q, kGroupRows, Tiles::Queries::kPanel),
        .map_grad_o = map_of_heads(a.grad_o, kGroupRows, Tiles::Queries::kPanel),
        .map_k = map_of_heads(a.k, Tiles::kKeys, Tiles::Keys::kPanel),
        .map_v = map_of_heads(a.v, Tiles::kKeys, Tiles::Keys::kPanel),
        .lse = a.lse.as<float>(),
        .terms = terms,
        .mask = mask,
        .scores = scores,
        .scale = a.scale};
    launch<Tiles>(stream, "attention_backward: dq", query_gradient_sm90_kernel<T, D, kCaps>, mask.queries,
                  a.q.count, arguments);
  }
  using Tiles = KeyGradientTiles<D>;
  const KeyGradientArguments<T, kCaps> arguments{
      .dk = view<T>(a.dk),
      .dv = view<T>(a.dv),
      .map_q = map_of_heads(a.q, Tiles::kQueries, Tiles::Queries::kPanel),
      .map_grad_o = map_of_heads(a.grad_o, Tiles::kQueries, Tiles::Queries::kPanel),
      .map_k = map_of_heads(a.k, kGroupRows, Tiles::Keys::kPanel),
      .map_v = map_of_heads(a.v, kGroupRows, Tiles::Keys::kPanel),
      .terms = terms,
      .mask = mask,
      .scores = scores,
      .scale = a.scale};
  launch<Tiles>(stream, "attention_backward: dk, dv", key_gradient_sm90_kernel<T, D, kCaps>, mask.keys,
                a.k.count, arguments);
}

}  // namespace

bool runs_on_sm90(const AttentionBackward& a) {
  return has_sm90() && a.q.head_size() <= 128 && copies_boxes(a.q) && copies_boxes(a.k) &&
         copies_boxes(a.v) && copies_boxes(a.grad_o);
}

void attention_backward_sm90(Stream& stream, const AttentionBackward& a, const Tensor& of_queries) {
  const QueryTerms terms = query_terms(of_queries);
  visit_heads_sm90<128>(a.q, [&]<class T, int D>() {
    a.softcap > 0 ? launch_both<T, D, true>(stream, a, terms) : launch_both<T, D, false>(stream, a, terms);
  });
}

}  // namespace flatshard::cuda
