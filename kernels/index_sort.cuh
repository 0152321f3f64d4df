#pragma once
// The sort of index_sort.h on the GPU, two launches a pass: the thread block of a tile counts its digits, and
// then places its numbers behind all smaller digits and behind equal digits of earlier tiles.
//
// Latency limits it: 65536 tokens are 32 tiles and 256 KiB, an estimated 10 us a launch. A tile has 8 numbers
// a thread. Placing them takes 40 registers and 20 KiB of shared memory, so six blocks fit on an SM, but few
// sorts have more tiles than there are SMs.

#include "kernels/cuda_util.cuh"
#include "kernels/index_sort.h"

namespace flatshard::cuda {

inline constexpr int kSortThreads = 256, kSortWarps = kSortThreads / kWarp;
inline constexpr int kSortRounds = kSortTile / kSortThreads;

// Numbers and their indices; without indices, number i has index i.
struct Indexed {
  const int32_t *numbers, *indices;
};

// counts[tile][digit]. A number outside [0, bound) traps.
static __global__ void __launch_bounds__(kSortThreads)
    count_digits_kernel(int32_t* counts, const int32_t* numbers, int size, int64_t bound, int pass) {
  __shared__ int found[kDigits];
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kSortThreads) found[d] = 0;
  __syncthreads();
  for (int k = 0; k < kSortRounds; ++k) {
    const int i = static_cast<int>(blockIdx.x * kSortTile + k * kSortThreads + threadIdx.x);
    if (i >= size) continue;
    require(numbers[i] >= 0 && numbers[i] < bound);
    atomicAdd(&found[digit_of(numbers[i], pass)], 1);
  }
  __syncthreads();
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kSortThreads)
    counts[static_cast<int>(blockIdx.x) * kDigits + d] = found[d];
}

// Finds where this tile's numbers of each digit begin: behind all smaller digits, and behind the same digit
// of earlier tiles.
__device__ inline void find_begins(int (&begin)[kDigits], const int32_t* counts, int tiles) {
  constexpr int kEach = kDigits / kSortThreads;  // each thread has this many neighboring digits
  __shared__ int sums[2][kSortThreads];
  const int thread = static_cast<int>(threadIdx.x);
  int before[kEach] = {}, all[kEach] = {}, mine = 0;
  for (int tile = 0; tile < tiles; ++tile)
    for (int k = 0; k < kEach; ++k) {
      const int count = counts[tile * kDigits + thread * kEach + k];
      if (tile < static_cast<int>(blockIdx.x)) before[k] += count;
      all[k] += count;
    }
  for (int k = 0; k < kEach; ++k) mine += all[k];
  int turn = 0;
  sums[turn][thread] = mine;
  for (int distance = 1; distance < kSortThreads; distance *= 2, turn ^= 1) {
    __syncthreads();
    sums[turn ^ 1][thread] = sums[turn][thread] + (thread >= distance ? sums[turn][thread - distance] : 0);
  }
  int smaller = sums[turn][thread] - mine;
  for (int k = 0; k < kEach; ++k) {
    begin[thread * kEach + k] = smaller + before[k];
    smaller += all[k];
  }
}

static __global__ void __launch_bounds__(kSortThreads)
    place_kernel(int32_t* numbers_out, int32_t* indices_out, const int32_t* counts, Indexed in, int size,
                 int tiles, int pass) {
  __shared__ int begin[kDigits];
  __shared__ int of_warp[kSortWarps][kDigits];  // counts of the warp's digits, later its numbers' places
  find_begins(begin, counts, tiles);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int d = lane; d < kDigits; d += kWarp) of_warp[warp][d] = 0;
  const int first = static_cast<int>(blockIdx.x * kSortTile) + warp * kWarp * kSortRounds + lane;
  int number[kSortRounds], rank[kSortRounds];
#pragma unroll
  for (int k = 0; k < kSortRounds; ++k) {
    const bool inside = first + k * kWarp < size;
    number[k] = inside ? in.numbers[first + k * kWarp] : 0;
    const int digit = digit_of(number[k], pass);
    // The lanes that have this digit.
    const unsigned same = __match_any_sync(0xffffffffu, inside ? digit : kDigits);
    __syncwarp();
    rank[k] = of_warp[warp][digit] + __popc(same & ((1u << lane) - 1));
    __syncwarp();
    if (inside && (same >> lane) == 1u) of_warp[warp][digit] = rank[k] + 1;  // the last lane writes
  }
  __syncthreads();
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kSortThreads) {
    int place = begin[d];
    for (int w = 0; w < kSortWarps; ++w) {
      const int count = of_warp[w][d];
      of_warp[w][d] = place;
      place += count;
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSortRounds; ++k) {
    const int i = first + k * kWarp;
    if (i >= size) continue;
    const int place = of_warp[warp][digit_of(number[k], pass)] + rank[k];
    numbers_out[place] = number[k];
    indices_out[place] = in.indices ? in.indices[i] : i;
  }
}

// The numbers, which are below `bound`, in sorted order, and their indices. The result is in `scratch`.
inline Indexed sort_indices(Stream& stream, const int32_t* numbers, int64_t size, int64_t bound,
                            int32_t* scratch) {
  const int passes = sort_passes(bound);
  const auto tiles = static_cast<unsigned>(sort_tiles(size));
  int32_t* const counts = scratch + 2 * std::min(passes, 2) * size;
  Indexed in{numbers, nullptr};
  for (int pass = 0; pass < passes; ++pass) {
    int32_t* const out = scratch + pass % 2 * 2 * size;
    count_digits_kernel<<<tiles, kSortThreads, 0, native(stream)>>>(counts, in.numbers,
                                                                    static_cast<int>(size), bound, pass);
    check_launch(stream, "sort: count_digits");
    place_kernel<<<tiles, kSortThreads, 0, native(stream)>>>(
        out, out + size, counts, in, static_cast<int>(size), static_cast<int>(tiles), pass);
    check_launch(stream, "sort: place");
    in = {out, out + size};
  }
  return in;
}

}  // namespace flatshard::cuda
