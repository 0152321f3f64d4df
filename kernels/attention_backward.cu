// The backward pass of attention on the GPU: two kernels, without atomics. In the first, a thread block owns
// a tile of queries and iterates over the keys; it writes dq and QueryTerms. In the second, a thread block
// owns a tile of keys and iterates over the queries of all heads of a group, with transposed scores; it
// writes dk and dv. Both recompute the scores. Tiles are copied in two stages, so that copies overlap
// products.
//
// Shared memory bandwidth limits them for heads of 128: registers (199 to 243 of 128 threads, in 48 to 64.5
// KiB) suffice for 16 rows per warp, so a fragment that a warp loads serves two mma instructions, not four as
// in the forward pass. Its 12 to 13 FLOP per byte suffice for 40% of the tensor cores' rate on sm_90. Two or
// three blocks fit on an SM, of which some warps compute exponentials while others multiply.

#include "kernels/attention_launch.cuh"
#include "kernels/attention_product.cuh"
#include "kernels/attention_sm90.h"
#include "kernels/attention_terms.cuh"

namespace flatshard::cuda {
namespace {

template <class T>
struct BackwardArguments {
  HeadsView<T> dq, dk, dv, grad_o, q, k, v, o;
  const float* lse;  // (Hq, rows)
  QueryTerms terms;
  Mask mask;
  ScoreCap<T> cap;
  float scale, scale_log2;  // factors of products, and to scores in base 2 (1 with a soft cap)
};

// Tile sizes are chosen so that sums fit the registers, and one thread block fits shared memory on every GPU.
template <class T, int D>
struct QueryGradientTiles {
  static constexpr bool kShort = sizeof(T) == 2;  // products run on tensor cores
  static constexpr int kWarps = kShort || D <= 128 ? 4 : 2, kThreads = kWarps * kWarp;
  static constexpr int kPieces = kShort && D <= 96 ? 2 : 1;  // pieces per warp
  static constexpr int kWarpRows = kPieces * kPieceRows, kRows = kWarps * kWarpRows;
  static constexpr int kKeys = (kShort ? 32 : 16) / (D > 128 ? 2 : 1);
  static constexpr int kBytes = SwizzledTile<T, D>::bytes(2 * kRows + 4 * kKeys);
};
template <class T, int D>
struct KeyGradientTiles {
  static constexpr bool kShort = sizeof(T) == 2;
  static constexpr int kWarps = kShort || D <= 128 ? 4 : 2, kThreads = kWarps * kWarp;
  static constexpr int kPieces = 1;
  static constexpr int kWarpRows = kPieces * kPieceRows, kRows = kWarps * kWarpRows;
  static constexpr int kQueries = (kShort ? 2 : 1) * (D <= 64 ? 32 : D <= 128 ? 16 : 8);
  static constexpr int kParts = D > 128 ? 2 : 1;  // parts of the columns of dk and dv, one block each
  static constexpr int kColumns = D / kParts;
  static constexpr int kTermBytes = (2 * kQueries * 4 + 127) / 128 * 128;
  static constexpr int kStageBytes = SwizzledTile<T, D>::bytes(2 * kQueries) + kTermBytes;
  static constexpr int kBytes = SwizzledTile<T, D>::bytes(2 * kRows) + 2 * kStageBytes;
};

template <class T, int D>
__global__ void __launch_bounds__(QueryGradientTiles<T, D>::kThreads)
    query_gradient_kernel(BackwardArguments<T> a) {
  using Tiles = QueryGradientTiles<T, D>;
  using Tile = SwizzledTile<T, D>;
  constexpr int kPieces = Tiles::kPieces, kKeys = Tiles::kKeys, kThreads = Tiles::kThreads;
  extern __shared__ __align__(128) uint4 shared[];
  const QueryBlock<Tiles> block(a.mask);
  if (block.rows.size() == 0) return;
  const Visible& visible = block.visible;
  const Tile q{shared_address(shared)}, grad_o{q.begin + Tile::bytes(Tiles::kRows)};
  const uint32_t stages = grad_o.begin + Tile::bytes(Tiles::kRows);
  const auto keys_of = [&](int t) { return Tile{stages + t % 2 * Tile::bytes(2 * kKeys)}; };
  const auto values_of = [&](int t) { return Tile{keys_of(t).begin + Tile::bytes(kKeys)}; };
  const auto copy_stage = [&](int t) {
    const int first = a.mask.keys.first_row(block.document) + t * kKeys, count = visible.keys - t * kKeys;
    copy_tile<kKeys, kThreads>(keys_of(t), a.k, first, block.key_head, count);
    copy_tile<kKeys, kThreads>(values_of(t), a.v, first, block.key_head, count);
  };
  const Span all = block.seen(), seen = block.seen_by_warp();
  if (all.size() > 0) {
    copy_tile<Tiles::kRows, kThreads>(q, a.q, block.first_row, block.head, block.rows.size());
    copy_tile<Tiles::kRows, kThreads>(grad_o, a.grad_o, block.first_row, block.head, block.rows.size());
    copy_stage(all.begin);
    commit_copies();
  }
  Sums<kPieces, D> dq;
  const LaneTerms<2 * kPieces> terms(block, a.grad_o, a.o, a.lse, a.terms, a.mask.queries.rows);
  for (int t = all.begin; t < all.end; ++t) {
    wait_for_copies<0>();
    __syncthreads();  // the copies of all threads are complete, and no thread reads the other stage
    if (t + 1 < all.end) copy_stage(t + 1);
    commit_copies();
    if (!seen.holds(t)) continue;
    Sums<kPieces, kKeys> scores, dp;
    multiply_along(scores, q, block.warp_row, keys_of(t));
    if (a.cap.caps()) scores.for_each([&](const auto& at) { scores[at] = a.cap.score(scores[at]); });
    multiply_along(dp, grad_o, block.warp_row, values_of(t));
    if (!visible.unmasked(block.own(), {t * kKeys, (t + 1) * kKeys}))
      scores.for_each([&](const auto& at) {
        if (!visible.attends(block.own().begin + at.row, t * kKeys + at.column)) scores[at] = -INFINITY;
      });
    // Makes gradients of scores. Masks and caps are branches for a tile, not conditions at each score.
    const auto differentiate = [&](auto slope) {
      scores.for_each([&](const auto& at) {
        const float p = exp2_of(fmaf(scores[at], a.scale_log2, -terms.lse[at.own_row]));
        scores[at] = p * (dp[at] - terms.delta[at.own_row]) * slope(scores[at]);
      });
    };
    a.cap.caps() ? differentiate([&](float score) { return a.cap.slope(score); })
                 : differentiate([](float) { return 1.0f; });
    multiply_down(dq, scores, keys_of(t), 0);
  }
  dq.scale(a.scale);
  write_rows(dq, q, block.warp_row, a.dq, block.own_row(), block.head, 0, block.own_count());
}

template <class T, int D>
__global__ void __launch_bounds__(KeyGradientTiles<T, D>::kThreads)
    key_gradient_kernel(BackwardArguments<T> a) {
  using Tiles = KeyGradientTiles<T, D>;
  using Tile = SwizzledTile<T, D>;
  constexpr int kPieces = Tiles::kPieces, kQueries = Tiles::kQueries, kThreads = Tiles::kThreads;
  extern __shared__ __align__(128) uint4 shared[];
  const OwnRows block(a.mask, true, Tiles::kRows);
  const Span rows = block.rows;
  if (rows.size() == 0) return;
  const Documents& queries = a.mask.queries;
  const Visible& visible = block.visible;
  const int key_head = blockIdx.x / Tiles::kParts, group = a.mask.group;
  const int first_column = blockIdx.x % Tiles::kParts * Tiles::kColumns;
  const int warp_row = threadIdx.x / kWarp * Tiles::kWarpRows;
  const int begin = rows.begin + warp_row;  // first row of the warp
  const Span own{begin, min(visible.keys, begin + Tiles::kWarpRows)};
  const Tile k{shared_address(shared)}, v{k.begin + Tile::bytes(Tiles::kRows)};
  const uint32_t stages = v.begin + Tile::bytes(Tiles::kRows);
  const Span all = visible.queries_of(rows).tiles(kQueries), seen = visible.queries_of(own).tiles(kQueries);
  const int steps = group * all.size(), first_row = block.first_row;
  // The loop runs over all query tiles of one head, then of the next.
  const auto tile_after = [&](int t) { return t + 1 < all.end ? t + 1 : all.begin; };
  const auto queries_of = [&](int step) { return Tile{stages + step % 2 * Tiles::kStageBytes}; };
  const auto grad_o_of = [&](int step) { return Tile{queries_of(step).begin + Tile::bytes(kQueries)}; };
  const auto terms_of = [&](int step) { return grad_o_of(step).begin + Tile::bytes(kQueries); };
  const auto copy_stage = [&](int step, int head, int t) {
    const int first = t * kQueries;
    const int64_t row = queries.first_row(block.document) + first;
    const int count = visible.queries - first;
    copy_tile<kQueries, kThreads>(queries_of(step), a.q, row, head, count);
    copy_tile<kQueries, kThreads>(grad_o_of(step), a.grad_o, row, head, count);
    const int64_t term = static_cast<int64_t>(head) * queries.rows + row;
    static_assert(2 * kQueries <= kThreads);
    if (threadIdx.x < 2 * kQueries) {
      const int r = threadIdx.x % kQueries;
      const float* from = threadIdx.x < kQueries ? a.terms.lse : a.terms.delta;
      copy_word_async(terms_of(step) + threadIdx.x * 4, from + term + r, r < count);
    }
  };
  Sums<kPieces, Tiles::kColumns> dk, dv;
  int head = key_head * group;  // head of the latest copy
  if (steps > 0) {
    copy_tile<Tiles::kRows, kThreads>(k, a.k, first_row, key_head, rows.size());
    copy_tile<Tiles::kRows, kThreads>(v, a.v, first_row, key_head, rows.size());
    copy_stage(0, head, all.begin);
    commit_copies();
  }
  for (int step = 0, t = all.begin; step < steps; ++step, t = tile_after(t)) {
    wait_for_copies<0>();
    __syncthreads();  // the copies of all threads are complete, and no thread reads the other stage
    if (step + 1 < steps) {
      const int next = tile_after(t);
      if (next == all.begin) ++head;
      copy_stage(step + 1, head, next);
    }
    commit_copies();
    if (!seen.holds(t)) continue;
    Sums<kPieces, kQueries> p, ds;
    multiply_along(p, k, warp_row, queries_of(step));
    if (a.cap.caps()) p.for_each([&](const auto& at) { p[at] = a.cap.score(p[at]); });
    multiply_along(ds, v, warp_row, grad_o_of(step));
    if (!visible.unmasked({t * kQueries, (t + 1) * kQueries}, {begin, begin + Tiles::kWarpRows}))
      p.for_each([&](const auto& at) {
        if (!visible.attends(t * kQueries + at.column, begin + at.row)) p[at] = -INFINITY;
      });
    float lse[p.kColumnsOfLane], delta[p.kColumnsOfLane];
#pragma unroll
    for (int c = 0; c < p.kColumnsOfLane; c += 2) {
      const uint32_t term = terms_of(step) + p.column_of(c) * 4;
      const float2 two = load_two(term), deltas = load_two(term + kQueries * 4);
      lse[c] = two.x, lse[c + 1] = two.y, delta[c] = deltas.x, delta[c + 1] = deltas.y;
    }
    const auto differentiate = [&](auto slope_of) {
      p.for_each([&](const auto& at) {
        const float slope = slope_of(p[at]);
        p[at] = exp2_of(fmaf(p[at], a.scale_log2, -lse[at.own_column]));
        ds[at] = p[at] * (ds[at] - delta[at.own_column]) * slope;
      });
    };
    a.cap.caps() ? differentiate([&](float score) { return a.cap.slope(score); })
                 : differentiate([](float) { return 1.0f; });
    multiply_down(dv, p, grad_o_of(step), first_column);
    multiply_down(dk, ds, queries_of(step), first_column);
  }
  const int count = visible.keys - begin;
  dk.scale(a.scale);
  write_rows(dk, k, warp_row, a.dk, first_row + warp_row, key_head, first_column, count);
  write_rows(dv, v, warp_row, a.dv, first_row + warp_row, key_head, first_column, count);
}

template <class T>
BackwardArguments<T> arguments_of(const AttentionBackward& a, const Mask& mask, const Tensor& terms) {
  return {.dq = view<T>(a.dq),
          .dk = view<T>(a.dk),
          .dv = view<T>(a.dv),
          .grad_o = view<T>(a.grad_o),
          .q = view<T>(a.q),
          .k = view<T>(a.k),
          .v = view<T>(a.v),
          .o = view<T>(a.o),
          .lse = a.lse.as<float>(),
          .terms = query_terms(terms),
          .mask = mask,
          .cap = score_cap<T>(a.softcap, a.scale),
          .scale = a.scale,
          .scale_log2 = a.softcap > 0 ? 1.0f : a.scale * kLog2e};
}

}  // namespace

void attention_backward(Stream& stream, const AttentionBackward& a, const Tensor& terms,
                        const OnePassScratch* one_pass) {
  if (runs_on_sm90(a))
    return one_pass ? attention_one_pass_sm90(stream, a, terms, *one_pass)
                    : attention_backward_sm90(stream, a, terms);
  const Mask mask = mask_of(a.mask, a.q, a.k);
  visit_float(a.q.of.dtype, [&]<class T>() {
    const BackwardArguments<T> arguments = arguments_of<T>(a, mask, terms);
    visit_head_size<T>(a.q.head_size(), [&]<int D>() {
      using KeyTiles = KeyGradientTiles<T, D>;
      if (mask.queries.rows > 0)
        launch<QueryGradientTiles<T, D>>(stream, "attention_backward: dq", query_gradient_kernel<T, D>,
                                         mask.queries, a.q.count, arguments);
      if (mask.keys.rows > 0)
        launch<KeyTiles>(stream, "attention_backward: dk, dv", key_gradient_kernel<T, D>, mask.keys,
                         a.k.count * KeyTiles::kParts, arguments);
    });
  });
}

}  // namespace flatshard::cuda
