#pragma once
// Shared by the forward and backward pass of attention on sm_90.

#include "kernels/attention_launch.cuh"
#include "kernels/tensor_copy.cuh"
#include "kernels/warpgroup.cuh"

namespace flatshard::cuda {

// For each of a lane's two rows, the span of the document's rows that it attends to, or that attend to it.
struct LaneSpans {
  Span of[2];

  // Returns whether no pair of a row of the warp and a row of the tile is masked.
  __device__ bool cover(const Span& tile) const {
    return __all_sync(0xffffffffu, of[0].covers(tile) && of[1].covers(tile));
  }
};

// Sets the scores of masked pairs to -inf, by a branch for the whole tile: conditions at each score take as
// long where nothing is masked.
template <int N>
__device__ void mask_scores(Sums<1, N>& scores, const LaneSpans& visible, const Span& tile) {
  if (visible.cover(tile)) return;
  scores.for_each([&](const auto& p) {
    if (!visible.of[p.own_row].holds(tile.begin + p.column)) scores[p] = -INFINITY;
  });
}

// The address of the first element of heads of a 16-bit type.
inline void* begin_of(const Heads& heads) {
  return heads.of.dtype == DType::bf16 ? static_cast<void*>(heads.at<bf16>(0, 0)) : heads.at<f16>(0, 0);
}

// Returns whether tensor copies can read these heads: rows and heads must begin at multiples of 16 bytes.
inline bool copies_boxes(const Heads& heads) {
  return size_of(heads.of.dtype) == 2 && heads.head_size() % 8 == 0 && heads.rows() > 0 &&
         reinterpret_cast<uintptr_t>(begin_of(heads)) % 16 == 0;
}

// The map for boxes of `rows` rows and `columns` columns of one head, swizzled like a PanelTile.
inline CUtensorMap map_of_heads(const Heads& heads, int rows, int columns) {
  return map_of_boxes({.begin = begin_of(heads),
                       .dtype = heads.of.dtype,
                       .extents = {heads.head_size(), heads.count, heads.rows()},
                       .strides = {heads.head_size(), heads.stride()},
                       .columns = columns,
                       .rows = rows});
}

// sums (64, N) = a b^T, for 64 rows of a.
template <class T, int D, int kRows, int N>
__device__ void multiply_along(Sums<1, N>& sums, const PanelTile<D, kRows>& a, const PanelTile<D, N>& b) {
#pragma unroll
  for (int d = 0; d < D; d += 16) multiply<T>(sums.flat(), a.along(0, d), b.along(0, d), d > 0);
}
// sums (64, N) = a b^T, with a in registers.
template <class T, int D, int N>
__device__ void multiply_along(Sums<1, N>& sums, const uint32_t (&a)[D / 16][4], const PanelTile<D, N>& b) {
#pragma unroll
  for (int d = 0; d < D; d += 16) multiply<T, false>(sums.flat(), a[d / 16], b.along(0, d), d > 0);
}
// sums (64, D) += p b, for K rows of b.
template <class T, int D, int K>
__device__ void multiply_down(Sums<1, D>& sums, const uint32_t (&p)[K / 16][4], const PanelTile<D, K>& b) {
#pragma unroll
  for (int k = 0; k < K; k += 16) {
    if constexpr (D > 128) {
      static_assert(D == 256);
      multiply<T, true>(sums.template flat<128>(0), p[k / 16], b.down(k, 0), true);
      multiply<T, true>(sums.template flat<128>(128), p[k / 16], b.down(k, 128), true);
    } else {
      multiply<T, true>(sums.flat(), p[k / 16], b.down(k), true);
    }
  }
}

// Rounds sums to T, as the left operand of a product.
template <class T, int N>
__device__ void round_to(uint32_t (&p)[N / 16][4], const Sums<1, N>& sums) {
#pragma unroll
  for (int n = 0; n < N / 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &sums.at[0][2 * n + i / 2][i % 2 * 2];
      p[n][i] = pack<T>(pair[0], pair[1]);
    }
}

// Calls launch<T, D>() with the type of the heads and the smallest compiled D that holds one, at most kMost.
template <int kMost = 256, class Launch>
void visit_heads_sm90(const Heads& heads, Launch&& launch) {
  const auto with = [&]<class T>() {
    if (heads.head_size() <= 64) return launch.template operator()<T, 64>();
    if (heads.head_size() <= 96) return launch.template operator()<T, 96>();
    if constexpr (kMost > 128)
      if (heads.head_size() > 128) return launch.template operator()<T, 256>();
    launch.template operator()<T, 128>();
  };
  heads.of.dtype == DType::bf16 ? with.template operator()<bf16>() : with.template operator()<f16>();
}

}  // namespace flatshard::cuda
