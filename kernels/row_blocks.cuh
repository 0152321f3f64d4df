#pragma once
// Sums over the rows of a tensor on the GPU (row_blocks.h). A thread block sums a block of rows into its own
// row of partials in global memory, one thread per column; a second kernel adds the partials in order.

#include "kernels/cuda_util.cuh"

namespace flatshard::cuda {

inline constexpr int kRowThreads = 256;

// Calls body(i) for each pack of N elements, starting at i, that this thread handles in a row of C elements.
template <int N, class Body>
__device__ inline void for_each_pack(int64_t C, Body body) {
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < C; i += kRowThreads * N) body(i);
}

// A row of partial sums. A pack of N columns is split into pieces of 16 bytes; the first pieces of all packs
// are stored first, then the second ones, so that accesses of neighboring lanes are coalesced.
template <int N>
struct PartialRow {
  static constexpr int kPiece = N < kPackSize<float> ? N : kPackSize<float>;
  static constexpr int kPieces = N / kPiece;
  using Piece = Pack<float, kPiece>;
  int64_t packs;  // per row

  // For the pack that starts at column i.
  __device__ int64_t place(int64_t i, int piece) const { return (piece * packs + i / N) * kPiece; }
  __device__ int64_t column(int64_t place) const {
    const int64_t piece = place / kPiece;
    return piece % packs * N + piece / packs * kPiece + place % kPiece;
  }
};

// total += or = the partial rows of C columns, `stride` elements apart.
template <int N>
__global__ void __launch_bounds__(kRowThreads)
    add_partials_kernel(float* total, const float* partials, int64_t count, int64_t stride, int64_t C,
                        bool accumulate) {
  const int64_t place = blockIdx.x * static_cast<int64_t>(kRowThreads) + threadIdx.x;
  if (place >= C) return;
  const int64_t column = PartialRow<N>{C / N}.column(place);
  float sum = accumulate ? total[column] : 0.0f;
  for (int64_t block = 0; block < count; ++block) sum += partials[block * stride + place];
  total[column] = sum;
}

// total += or = columns [column, column + total.size()) of all rows of `partials`. Nothing if total is empty.
template <int N>
void add_partials(Stream& stream, const char* name, const Tensor& total, const Tensor& partials,
                  bool accumulate, int64_t column = 0) {
  const int64_t C = total.size();
  if (C == 0) return;
  const auto blocks = static_cast<unsigned>((C + kRowThreads - 1) / kRowThreads);
  add_partials_kernel<N><<<blocks, kRowThreads, 0, native(stream)>>>(
      total.as<float>(), partials.as<float>() + column, partials.shape[0], partials.shape[-1], C, accumulate);
  check_launch(name);
}

}  // namespace flatshard::cuda
