// The forward pass of attention on the GPU: an online softmax, as on the CPU. A thread block computes one
// tile of queries of a head, a warp some of its rows, and iterates over tiles of keys. Values are loaded
// during the product with keys, and keys during the product with values.
//
// The tensor cores limit it, of whose rate mma.sync reaches an estimated 60% on sm_90, and for heads of 64
// the exponentials as well. A warp owns 32 queries, so a fragment that it loads from shared memory serves
// four mma instructions: 26 FLOP per byte, enough for 80% of the rate. With at most 255 registers for 128
// threads and 64 KiB, two blocks fit on an SM: one computes exponentials while the other multiplies.

#include "kernels/attention_launch.cuh"
#include "kernels/attention_product.cuh"
#include "kernels/attention_sm90.h"
#include "kernels/attention_softmax.cuh"

namespace flatshard::cuda {
namespace {

// Tile sizes are chosen so that sums fit the registers, and one thread block fits shared memory on every GPU.
template <class T, int D>
struct ForwardTiles {
  static constexpr bool kShort = sizeof(T) == 2;  // products run on tensor cores
  static constexpr int kWarps = kShort || D <= 128 ? 4 : 2, kThreads = kWarps * kWarp;
  static constexpr int kPieces = kShort && D <= 128 ? 2 : 1;  // pieces per warp
  static constexpr int kWarpRows = kPieces * kPieceRows, kRows = kWarps * kWarpRows;
  static constexpr int kKeys = kShort ? 64 : 32;
  static constexpr int kBytes = SwizzledTile<T, D>::bytes(kRows + 2 * kKeys);
};

template <class T>
struct ForwardArguments {
  HeadsView<T> o;
  float* lse;  // (Hq, rows)
  HeadsView<T> q, k, v;
  Mask mask;
  ScoreCap<T> cap;
  float scale;  // factor to scores in base 2; 1 with a soft cap
};

template <class T, int D>
__global__ void __launch_bounds__(ForwardTiles<T, D>::kThreads) forward_kernel(ForwardArguments<T> a) {
  using Tiles = ForwardTiles<T, D>;
  using Tile = SwizzledTile<T, D>;
  constexpr int kPieces = Tiles::kPieces, kKeys = Tiles::kKeys, kThreads = Tiles::kThreads;
  extern __shared__ __align__(128) uint4 shared[];
  const QueryBlock<Tiles> block(a.mask);
  if (block.rows.size() == 0) return;
  const Visible& visible = block.visible;
  const Tile q{shared_address(shared)}, k{q.begin + Tile::bytes(Tiles::kRows)},
      v{k.begin + Tile::bytes(kKeys)};
  const int key_row = a.mask.keys.first_row(block.document);
  const auto copy_keys = [&](const Tile& to, const HeadsView<T>& from, int t) {
    const int first = t * kKeys;
    copy_tile<kKeys, kThreads>(to, from, key_row + first, block.key_head, visible.keys - first);
  };
  const Span all = block.seen(), seen = block.seen_by_warp();
  Sums<kPieces, D> o;
  Softmax<kPieces> softmax;
  if (all.size() > 0) {
    copy_tile<Tiles::kRows, kThreads>(q, a.q, block.first_row, block.head, block.rows.size());
    copy_keys(k, a.k, all.begin);
    commit_copies();
  }
  for (int t = all.begin; t < all.end; ++t) {
    const bool attends = seen.holds(t);
    Sums<kPieces, kKeys> scores;
    wait_for_copies<0>();
    __syncthreads();  // all keys have been copied, and no thread reads the previous values
    copy_keys(v, a.v, t);
    commit_copies();
    if (attends) {
      multiply_along(scores, q, block.warp_row, k);
      if (a.cap.caps()) scores.for_each([&](const auto& p) { scores[p] = a.cap.score(scores[p]); });
      if (!visible.unmasked(block.own(), {t * kKeys, (t + 1) * kKeys}))
        scores.for_each([&](const auto& p) {
          if (!visible.attends(block.own().begin + p.row, t * kKeys + p.column)) scores[p] = -INFINITY;
        });
    }
    wait_for_copies<0>();
    __syncthreads();  // all values have been copied, and no thread reads the keys
    if (t + 1 < all.end) copy_keys(k, a.k, t + 1);
    commit_copies();
    if (attends) {
      softmax.rescale(o, softmax.add(scores, a.scale));
      multiply_down(o, scores, v, 0);
    }
  }
  softmax.finish(o, [&](int own_row, float lse) {
    const int row = o.row_of(own_row);
    if (threadIdx.x % 4 == 0 && row < block.own_count())
      a.lse[static_cast<int64_t>(block.head) * a.mask.queries.rows + block.own_row() + row] = lse;
  });
  write_rows(o, q, block.warp_row, a.o, block.own_row(), block.head, 0, block.own_count());
}

template <class T>
ForwardArguments<T> arguments_of(const AttentionForward& a, const Mask& mask) {
  return {.o = view<T>(a.o),
          .lse = a.lse.as<float>(),
          .q = view<T>(a.q),
          .k = view<T>(a.k),
          .v = view<T>(a.v),
          .mask = mask,
          .cap = score_cap<T>(a.softcap, a.scale),
          .scale = a.softcap > 0 ? 1.0f : a.scale * kLog2e};
}

}  // namespace

void attention_forward(Stream& stream, const AttentionForward& a) {
  const Mask mask = mask_of(a.mask, a.q, a.k);
  if (mask.queries.rows == 0) return;
  if (runs_on_sm90(a)) return attention_forward_sm90(stream, a);
  visit_float(a.q.of.dtype, [&]<class T>() {
    visit_head_size<T>(a.q.head_size(), [&]<int D>() {
      launch<ForwardTiles<T, D>>(stream, "attention_forward", forward_kernel<T, D>, mask.queries, a.q.count,
                                 arguments_of<T>(a, mask));
    });
  });
}

}  // namespace flatshard::cuda
