#pragma once
// The terms of each query that the backward pass of attention on a GPU needs beside q, o and do. The first
// kernel computes them; the kernel of dk and dv reads them.

#include "kernels/attention_tile.cuh"

namespace flatshard::cuda {

// The terms of each query, (Hq, rows) f32: the first kernel writes them, the second reads them.
struct QueryTerms {
  float* lse;    // lse in base 2; +inf for a fully masked row, so that its p are zero
  float* delta;  // do o
};

// The two terms in a (2, Hq, rows) tensor.
inline QueryTerms query_terms(const Tensor& terms) {
  float* lse = terms.as<float>();
  return {lse, lse + terms.size() / 2};
}

// lse in base 2, as QueryTerms has it.
__device__ inline float base_2_lse(float natural) {
  return natural == -INFINITY ? INFINITY : natural * kLog2e;
}

// The dot product x y of a row, computed by four neighboring lanes that each handle every fourth chunk.
template <class T>
__device__ float row_dot(const HeadsView<T>& x, const HeadsView<T>& y, int64_t row, int head) {
  float dot = 0.0f;
  for (int column = threadIdx.x % 4 * kPackSize<T>; column < x.head_size; column += 4 * kPackSize<T>) {
    const auto left = load_chunk(x, row, head, column), right = load_chunk(y, row, head, column);
    for (int i = 0; i < kPackSize<T>; ++i)
      dot = fmaf(to_float(left.element[i]), to_float(right.element[i]), dot);
  }
  dot += __shfl_xor_sync(0xffffffffu, dot, 1);
  return dot + __shfl_xor_sync(0xffffffffu, dot, 2);
}

// The terms of the rows of a lane, in a block that owns queries; also written to `all`.
template <int kRows>
struct LaneTerms {
  float lse[kRows], delta[kRows];

  template <class T, class Block>
  __device__ LaneTerms(const Block& block, const HeadsView<T>& grad_o, const HeadsView<T>& o,
                       const float* from, const QueryTerms& all, int queries) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = Sums<kRows / 2, 8>::row_of(r);
      const int64_t at = static_cast<int64_t>(block.head) * queries + block.own_row() + row;
      const bool exists = row < block.own_count();
      const float dot = row_dot(grad_o, o, exists ? block.own_row() + row : block.first_row, block.head);
      lse[r] = base_2_lse(exists ? from[at] : -INFINITY);
      delta[r] = exists ? dot : 0.0f;
      if (exists && threadIdx.x % 4 == 0) all.lse[at] = lse[r], all.delta[at] = delta[r];
    }
  }
};

// Copies the terms of kQueries queries from `from` on to shared memory, lse before delta. From `count` on
// there are no queries, and the terms are those of masked rows. Called by one warp.
template <int kQueries>
__device__ void copy_terms_of_tile(const QueryTerms& terms, int64_t from, int count, uint32_t to) {
  for (int i = threadIdx.x % kWarp; i < kQueries; i += kWarp) {
    const bool exists = i < count;
    store_shared(to + i * 4, __float_as_uint(exists ? terms.lse[from + i] : INFINITY));
    store_shared(to + (kQueries + i) * 4, __float_as_uint(exists ? terms.delta[from + i] : 0.0f));
  }
}

}  // namespace flatshard::cuda
