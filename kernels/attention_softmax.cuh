#pragma once
// The online softmax of attention on a GPU: keys come tile after tile, and the sums so far shrink when the
// maximum of a row grows.

#include "kernels/attention_tile.cuh"

namespace flatshard::cuda {

// The online softmax of the rows of a lane.
template <int kPieces>
struct Softmax {
  static constexpr int kRows = 2 * kPieces;
  float maximum[kRows], sum[kRows];  // sum covers only the columns of this lane

  __device__ Softmax() {
    for (int r = 0; r < kRows; ++r) maximum[r] = -INFINITY, sum[r] = 0.0f;
  }

  // The factor of the previous sums under the new maximum, for each row.
  struct Kept {
    float share[kRows];
    bool all = true;  // every share is 1
  };

  // Replaces scores by p = 2^(scale score - maximum) of the maximum so far, and adds them to the sums.
  template <int kKeys>
  __device__ Kept add(Sums<kPieces, kKeys>& scores, float scale) {
    float now[kRows];
    Kept kept;
#pragma unroll
    for (int r = 0; r < kRows; ++r) now[r] = -INFINITY;
    scores.for_each([&](const auto& p) { now[p.own_row] = fmaxf(now[p.own_row], scores[p]); });
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float& most = now[r];
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      most = fmaxf(maximum[r], most * scale);
      const float shift = most == -INFINITY ? 0.0f : most;
      kept.share[r] = exp2_of(maximum[r] - shift);
      kept.all &= kept.share[r] == 1.0f;
      sum[r] *= kept.share[r];
      maximum[r] = most;
      most = shift;
    }
    scores.for_each([&](const auto& p) {
      scores[p] = exp2_of(fmaf(scores[p], scale, -now[p.own_row]));
      sum[p.own_row] += scores[p];
    });
    return kept;
  }

  template <int D>
  static __device__ void rescale(Sums<kPieces, D>& o, const Kept& kept) {
    if (!__all_sync(0xffffffffu, kept.all)) o.for_each([&](const auto& p) { o[p] *= kept.share[p.own_row]; });
  }

  // Divides o by the sums, and calls write(own_row, lse) for each row of the lane.
  template <int D, class Write>
  __device__ void finish(Sums<kPieces, D>& o, Write write) {
    float inverse[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float total = sum[r];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const bool fully_masked = total == 0.0f;
      inverse[r] = fully_masked ? 0.0f : 1.0f / total;
      write(r, fully_masked ? -INFINITY : (maximum[r] + log2f(total)) * kLn2);
    }
    o.for_each([&](const auto& p) { o[p] *= inverse[p.own_row]; });
  }
};

}  // namespace flatshard::cuda
