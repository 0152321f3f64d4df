#pragma once
// The two matrix products of attention, computed by a warp: on tensor cores for bf16 and f16, with fused
// multiply-adds for f32. Operands are tiles in shared memory. Sums stay in the registers of their lanes, also
// when they are the left operand of the second product.

#include "kernels/attention_tile.cuh"

namespace flatshard::cuda {

// sums += a b^T: rows of a from first_row on with the kColumns rows of b, along D.
template <class T, int D, int kPieces, int kColumns>
__device__ void multiply_along(Sums<kPieces, kColumns>& sums, const SwizzledTile<T, D>& a, int first_row,
                               const SwizzledTile<T, D>& b) {
  static_assert(kColumns % 16 == 0);
  using Tile = SwizzledTile<T, D>;
  const int lane = threadIdx.x % kWarp;
  const uint32_t of_a = a.at(first_row + lane % 16, lane / 16);
  const uint32_t of_b = b.at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int d = 0; d < D / 16; ++d) {
    uint32_t left[kPieces][4];
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
      load_pieces(left[piece], Tile::below(Tile::further(of_a, 2 * d), piece * kPieceRows));
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      uint32_t right[4];
      load_pieces(right, Tile::below(Tile::further(of_b, 2 * d), 16 * n));
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        multiply_add<T>(sums.at[piece][2 * n], left[piece], right[0], right[1]);
        multiply_add<T>(sums.at[piece][2 * n + 1], left[piece], right[2], right[3]);
      }
    }
  }
}

// sums += p b: p, rounded to T, with columns [first_column, first_column + kOut) of the kColumns rows of b.
template <class T, int D, int kPieces, int kColumns, int kOut>
__device__ void multiply_down(Sums<kPieces, kOut>& sums, const Sums<kPieces, kColumns>& p,
                              const SwizzledTile<T, D>& b, int first_column) {
  static_assert(kColumns % 16 == 0 && kOut % 16 == 0);
  using Tile = SwizzledTile<T, D>;
  const int lane = threadIdx.x % kWarp;
  const uint32_t of_b = b.at(lane % 16, first_column / Tile::kChunk + lane / 16);
#pragma unroll
  for (int n = 0; n < kColumns / 16; ++n) {
    uint32_t left[kPieces][4];
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = &p.at[piece][2 * n + i / 2][i % 2 * 2];
        left[piece][i] = pack<T>(pair[0], pair[1]);
      }
#pragma unroll
    for (int d = 0; d < kOut / 16; ++d) {
      uint32_t right[4];
      load_pieces_transposed(right, Tile::below(Tile::further(of_b, 2 * d), 16 * n));
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        multiply_add<T>(sums.at[piece][2 * d], left[piece], right[0], right[1]);
        multiply_add<T>(sums.at[piece][2 * d + 1], left[piece], right[2], right[3]);
      }
    }
  }
}

__device__ inline float add_dot(float sum, const float4& a, const float4& b) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

template <int D, int kColumns>
__device__ void multiply_along(Sums<1, kColumns>& sums, const SwizzledTile<float, D>& a, int first_row,
                               const SwizzledTile<float, D>& b) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll 1
  for (int chunk = 0; chunk < D / 4; ++chunk) {
    const float4 left[2] = {load_four(a.at(first_row + lane / 4, chunk)),
                            load_four(a.at(first_row + lane / 4 + 8, chunk))};
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float4 right = load_four(b.at(8 * n + lane % 4 * 2 + j, chunk));
        for (int half = 0; half < 2; ++half) {
          float& sum = sums.at[0][n][2 * half + j];
          sum = add_dot(sum, left[half], right);
        }
      }
  }
}

// The product for f32. Each lane holds p for its own columns; the four lanes of a row exchange them by
// shuffles.
template <int D, int kColumns, int kOut>
__device__ void multiply_down(Sums<1, kOut>& sums, const Sums<1, kColumns>& p,
                              const SwizzledTile<float, D>& b, int first_column) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll 1
    for (int pair = 0; pair < 4; ++pair) {
      float left[4];
      for (int i = 0; i < 4; ++i) left[i] = __shfl_sync(0xffffffffu, p.at[0][n][i], lane / 4 * 4 + pair);
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int d = 0; d < kOut / 8; ++d) {
          const int column = first_column + 8 * d + lane % 4 * 2;
          const float2 right = load_two(b.at(8 * n + 2 * pair + j, column / 4) + column % 4 * 4);
          float(&sum)[4] = sums.at[0][d];
          sum[0] = fmaf(left[j], right.x, sum[0]), sum[1] = fmaf(left[j], right.y, sum[1]);
          sum[2] = fmaf(left[2 + j], right.x, sum[2]), sum[3] = fmaf(left[2 + j], right.y, sum[3]);
        }
    }
}

}  // namespace flatshard::cuda
