// A matrix with its rows as columns, on the GPU. A block copies a tile through shared memory, so that it
// reads and writes whole lines; memory bandwidth limits it.

#include "kernels/cuda_util.cuh"
#include "kernels/transpose.h"

namespace flatshard::cuda {
namespace {

constexpr int kTile = 32, kThreads = 256, kRowsAtOnce = kThreads / kTile;

// Bits is an unsigned integer of the elements' size.
template <class Bits>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(Bits* y, const Bits* x, int64_t rows, int64_t columns, int64_t tiles_across) {
  __shared__ Bits tile[kTile][kTile + 1];  // padded, so that a column is in different banks
  const int64_t row = blockIdx.x / tiles_across * kTile, column = blockIdx.x % tiles_across * kTile;
  const int across = static_cast<int>(threadIdx.x) % kTile, first = static_cast<int>(threadIdx.x) / kTile;
  for (int i = first; i < kTile; i += kRowsAtOnce)
    if (row + i < rows && column + across < columns)
      tile[i][across] = x[(row + i) * columns + column + across];
  __syncthreads();
  for (int i = first; i < kTile; i += kRowsAtOnce)
    if (column + i < columns && row + across < rows) y[(column + i) * rows + row + across] = tile[across][i];
}

template <class Bits>
void launch(Stream& stream, const Transpose& a) {
  const int64_t rows = a.x.shape[0], columns = a.x.shape[1], across = blocks_for(columns, kTile);
  transpose_kernel<<<static_cast<unsigned>(blocks_for(rows, kTile) * across), kThreads, 0, native(stream)>>>(
      static_cast<Bits*>(a.y.data), static_cast<const Bits*>(a.x.data), rows, columns, across);
  check_launch(stream, "transpose");
}

}  // namespace

void transpose(Stream& stream, const Transpose& a) {
  size_of(a.x.dtype) == 4 ? launch<uint32_t>(stream, a) : launch<uint16_t>(stream, a);
}

}  // namespace flatshard::cuda
