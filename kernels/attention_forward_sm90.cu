// The forward pass of attention on sm_90 (Hopper), as in attention_forward.cu but with warpgroup products,
// which read shared memory themselves, and with tensor copies by a warp that does nothing else.
//
//   head    queries x keys   consumers   registers: o, scores, p, all   shared memory: q + 2 (k + v)
//    64        192 x 128         3           32  64  32   160               24 +  64 =  88 KiB
//    64, short 128 x 128         2           32  64  32   232               16 +  64 =  80 KiB
//    96        128 x 128         2           48  64  32   232               24 +  96 = 120 KiB
//   128        128 x 128         2           64  64  32   232               32 + 128 = 160 KiB
//   256        128 x  64         2          128  32  16   232               64 + 128 = 192 KiB
//
// While a warpgroup computes the exponentials of one tile of keys, its product with the previous tile of
// values runs. The warpgroups also take turns (ping-pong), so that the exponentials of one overlap the
// products of another:
//
//   copier      k0  k1  v0  k2  v1  k3  v2  ...           k and v have a ring of two stages each
//   group 0     q k1, p0 v0 | softmax 1       | q k2, p1 v1 | softmax 2       ...
//   group 1                 | q k1, p0 v0     | softmax 1   | q k2, p1 v1     ...
//
// Tiles of keys are visited from the last to the first. Rows beyond a document's end belong to the next
// document: their scores are masked, so their values do not count.

#include "kernels/attention_sm90.cuh"
#include "kernels/attention_sm90.h"
#include "kernels/attention_softmax.cuh"

namespace flatshard::cuda {
namespace {

template <int D, int kGroups>
struct ForwardTiles : Groups<kGroups> {
  static constexpr int kConsumers = kGroups, kWarpRows = kPieceRows;
  static constexpr int kKeys = D > 128 ? 64 : 128, kStages = 2;
  static constexpr bool kTakesTurns = D <= 128;
  using Queries = PanelTile<D, kGroupRows>;  // tile of one warpgroup
  using Keys = PanelTile<D, kKeys>;
  static constexpr int kQueryBytes = kConsumers * Queries::kBytes;
  static constexpr int kBytes = kQueryBytes + 2 * kStages * Keys::kBytes + kTileAlignment;
};

template <class T>
struct ForwardArguments {
  HeadsView<T> o;
  float* lse;  // (Hq, rows)
  CUtensorMap q, k, v;
  Mask mask;
  ScoreCap<T> cap;
  float scale;  // factor to scores in base 2; 1 with a soft cap
};

template <class OfTiles>
struct ForwardShared {
  using Tiles = OfTiles;
  uint32_t begin;

  __device__ typename Tiles::Queries queries(int group) const {
    return {begin + group * Tiles::Queries::kBytes};
  }
  __device__ typename Tiles::Keys keys(int t) const {
    return {begin + Tiles::kQueryBytes + t % Tiles::kStages * Tiles::Keys::kBytes};
  }
  __device__ typename Tiles::Keys values(int t) const {
    return {keys(t).begin + Tiles::kStages * Tiles::Keys::kBytes};
  }
};

template <class Tiles>
struct ForwardBarriers {
  uint64_t queries;
  Ring<Tiles::kStages> keys, values;
};

// Copies the queries of the block, and its `count` tiles of keys and values, beginning with the tile at row
// `last`. Called by one thread.
template <class T, class Tiles>
__device__ void copy_all(const ForwardArguments<T>& a, const QueryBlock<Tiles>& block,
                         const ForwardShared<Tiles>& shared, ForwardBarriers<Tiles>& barriers, int last,
                         int count) {
  arrive_and_expect(&barriers.queries, Tiles::kQueryBytes);
  for (int g = 0; g < Tiles::kConsumers; ++g)
    load_tile(shared.queries(g), a.q, block.head, block.first_row + g * kGroupRows, &barriers.queries);
  const auto copy = [&](auto& ring, const auto& tile, const CUtensorMap& map, int t) {
    ring.wait_empty(t);
    uint64_t* full = &ring.full[ring.stage(t)];
    arrive_and_expect(full, tile.kBytes);
    load_tile(tile, map, block.key_head, last - t * Tiles::kKeys, full);
  };
#pragma unroll 1
  for (int t = 0; t < count; ++t) {
    copy(barriers.keys, shared.keys(t), a.k, t);
    if (t > 0) copy(barriers.values, shared.values(t - 1), a.v, t - 1);
  }
  copy(barriers.values, shared.values(count - 1), a.v, count - 1);
}

// The warpgroups that compute take turns at issuing products: barrier 1 + g is the turn of group g.
template <int kConsumers>
struct Turns {
  int group;

  // The last group hands the first turn to the first.
  __device__ void start() const {
    if (group == kConsumers - 1) arrive_at_barrier(1, 2 * kGroup);
  }
  __device__ void take() const { sync_barrier(1 + group, 2 * kGroup); }
  __device__ void pass(bool is_last) const {
    if (group < kConsumers - 1 || !is_last) arrive_at_barrier(1 + (group + 1) % kConsumers, 2 * kGroup);
  }
};

// Iterates over the `count` tiles of keys that the block attends to, down from `end`.
template <class T, int D, class Tiles>
__device__ void attend(Sums<1, D>& o, Softmax<1>& softmax, const ForwardArguments<T>& a,
                       const QueryBlock<Tiles>& block, const ForwardShared<Tiles>& shared,
                       ForwardBarriers<Tiles>& barriers, int end, int count) {
  constexpr int kKeys = Tiles::kKeys;
  const int group = __shfl_sync(0xffffffffu, Tiles::group(), 0);
  const bool speaks = threadIdx.x % kWarp == 0;  // this lane arrives for its warp
  const Turns<Tiles::kConsumers> turns{group};
  const auto q = shared.queries(group);
  const int own_begin = block.own().begin;
  const LaneSpans visible{block.visible.keys_of(own_begin + o.row_of(0)),
                          block.visible.keys_of(own_begin + o.row_of(1))};
  // Caps and masks the products with tile t.
  const auto finish_scores = [&](Sums<1, kKeys>& scores, int t) {
    const int first = (end - 1 - t) * kKeys;
    if (a.cap.caps()) scores.for_each([&](const auto& p) { scores[p] = a.cap.score(scores[p]); });
    mask_scores(scores, visible, {first, first + kKeys});
  };
  uint32_t p[kKeys / 16][4];
  if (Tiles::kTakesTurns && count > 1) turns.start();
  wait(&barriers.queries, 0);
  {
    Sums<1, kKeys> scores{typename Sums<1, kKeys>::Unset{}};
    barriers.keys.wait_full(0);
    __syncwarp();
    fence_products();
    multiply_along<T>(scores, q, shared.keys(0));
    commit_products();
    wait_for_products<0>(scores);
    if (speaks) barriers.keys.release(0);
    finish_scores(scores, 0);
    softmax.add(scores, a.scale);
    round_to<T>(p, scores);
  }
  for (int t = 1; t < count; ++t) {
    Sums<1, kKeys> scores{typename Sums<1, kKeys>::Unset{}};
    barriers.keys.wait_full(t);
    barriers.values.wait_full(t - 1);
    __syncwarp();
    if (Tiles::kTakesTurns) turns.take();
    fence_products(o, p);
    multiply_along<T>(scores, q, shared.keys(t));
    commit_products();
    multiply_down<T>(o, p, shared.values(t - 1));
    commit_products();
    if (Tiles::kTakesTurns) turns.pass(t + 1 == count);
    wait_for_products<1>(scores);
    if (speaks) barriers.keys.release(t);
    finish_scores(scores, t);
    const auto kept = softmax.add(scores, a.scale);
    wait_for_products<0>(o, p);
    if (speaks) barriers.values.release(t - 1);
    softmax.rescale(o, kept);
    round_to<T>(p, scores);
  }
  barriers.values.wait_full(count - 1);
  __syncwarp();
  fence_products(o, p);
  multiply_down<T>(o, p, shared.values(count - 1));
  commit_products();
  wait_for_products<0>(o, p);
}

template <class T, int D, int kGroups>
__global__ void __launch_bounds__(ForwardTiles<D, kGroups>::kThreads, 1)
    forward_sm90_kernel(const __grid_constant__ ForwardArguments<T> a) {
  using Tiles = ForwardTiles<D, kGroups>;
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ ForwardBarriers<Tiles> barriers;
  const QueryBlock<Tiles> block(a.mask);
  if (block.rows.size() == 0) return;
  const ForwardShared<Tiles> shared{first_tile(memory)};
  const Span all = block.seen();
  const int count = all.size();
  if (threadIdx.x == 0) {
    init_barrier(&barriers.queries, 1);
    barriers.keys.init(1, Tiles::kConsumers * kGroupWarps);
    barriers.values.init(1, Tiles::kConsumers * kGroupWarps);
    fence_barrier_init();
  }
  __syncthreads();
  if (Tiles::copies()) {
    give_registers<Tiles::kOfCopier>();
    if (threadIdx.x % kGroup == 0 && count > 0)
      copy_all<T>(a, block, shared, barriers,
                  a.mask.keys.first_row(block.document) + (all.end - 1) * Tiles::kKeys, count);
    return;
  }
  take_registers<Tiles::kOfConsumer>();
  Sums<1, D> o;
  Softmax<1> softmax;
  if (count > 0) attend<T>(o, softmax, a, block, shared, barriers, all.end, count);
  softmax.finish(o, [&](int own_row, float lse) {
    const int row = o.row_of(own_row);
    if (threadIdx.x % 4 == 0 && row < block.own_count())
      a.lse[static_cast<int64_t>(block.head) * a.mask.queries.rows + block.own_row() + row] = lse;
  });
  // o is written through the memory of the group's queries, which all of its warps have read.
  sync_barrier(1 + Tiles::kConsumers + Tiles::group(), kGroup);
  write_rows(o, SwizzledTile<T, D>{shared.queries(Tiles::group()).begin}, block.warp_row % kGroupRows, a.o,
             block.own_row(), block.head, 0, block.own_count());
}

// Returns whether blocks of 128 queries with heads of 64 are faster than blocks of 192. Fewer of their pairs
// are masked: they visit a quarter fewer for documents of 1024 tokens, a tenth for 2048 and a twelfth for
// 4096. But two warpgroups hide less of each other's work than three.
bool is_short(const Documents& queries) { return queries.rows / queries.count <= 2048; }

template <class T, int D, int kGroups>
void launch_with(Stream& stream, const AttentionForward& a, const Mask& mask) {
  using Tiles = ForwardTiles<D, kGroups>;
  const ForwardArguments<T> arguments{.o = view<T>(a.o),
                                      .lse = a.lse.as<float>(),
                                      .q = map_of_heads(a.q, kGroupRows, Tiles::Queries::kPanel),
                                      .k = map_of_heads(a.k, Tiles::kKeys, Tiles::Keys::kPanel),
                                      .v = map_of_heads(a.v, Tiles::kKeys, Tiles::Keys::kPanel),
                                      .mask = mask,
                                      .cap = score_cap<T>(a.softcap, a.scale),
                                      .scale = a.softcap > 0 ? 1.0f : a.scale * kLog2e};
  launch<Tiles>(stream, "attention_forward", forward_sm90_kernel<T, D, kGroups>, mask.queries, a.q.count,
                arguments);
}

}  // namespace

bool has_sm90() {
  int device = 0, major = 0;
  return attention_tier() != AttentionTier::sm_80 && cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == 9;
}

bool runs_on_sm90(const AttentionForward& a) {
  return has_sm90() && a.q.head_size() <= 256 && copies_boxes(a.q) && copies_boxes(a.k) && copies_boxes(a.v);
}

void attention_forward_sm90(Stream& stream, const AttentionForward& a) {
  const Mask mask = mask_of(a.mask, a.q, a.k);
  visit_heads_sm90(a.q, [&]<class T, int D>() {
    if constexpr (D <= 64)
      if (!is_short(mask.queries)) return launch_with<T, D, 3>(stream, a, mask);
    launch_with<T, D, 2>(stream, a, mask);
  });
}

}  // namespace flatshard::cuda
