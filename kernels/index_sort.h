#pragma once
// Sorts indices by the number that each refers to, keeping the order of equal numbers: a radix sort by digits
// of kDigitBits, from the lowest up. The backward pass of the embedding sorts tokens and positions by it, on
// the GPU by index_sort.cuh, with the same result.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "runtime/device.h"

namespace flatshard {

inline constexpr int kDigitBits = 9;  // two passes up to a vocabulary of 2^18
inline constexpr int kDigits = 1 << kDigitBits;
inline constexpr int64_t kSortTile = 2048;  // numbers that one thread block sorts

constexpr int64_t sort_tiles(int64_t size) { return (size + kSortTile - 1) / kSortTile; }

// The number of passes for numbers below `bound`.
inline int sort_passes(int64_t bound) {
  const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(bound, 2) - 1)));
  return (bits + kDigitBits - 1) / kDigitBits;
}

// The scratch to sort `size` numbers, in i32: two buffers of indices, which passes write and read in turn; on
// a GPU also the numbers in the same order, and the counts of digits.
inline int64_t sort_scratch(Device device, int64_t size, int64_t bound) {
  const int64_t buffers = std::min(sort_passes(bound), 2);
  return device.is_cuda() ? 2 * buffers * size + sort_tiles(size) * kDigits : buffers * size;
}

constexpr int digit_of(int32_t number, int pass) { return number >> (pass * kDigitBits) & (kDigits - 1); }

namespace cpu {

// The indices of `numbers`, which are below `bound`, in sorted order. The result is in `scratch`.
inline const int32_t* sort_indices(const int32_t* numbers, int64_t size, int64_t bound, int32_t* scratch) {
  int32_t *from = nullptr, *to = scratch;
  for (int pass = 0; pass < sort_passes(bound); ++pass) {
    std::array<int32_t, kDigits + 1> begin{};
    for (int64_t n = 0; n < size; ++n) ++begin[digit_of(numbers[n], pass) + 1];
    for (int digit = 0; digit < kDigits; ++digit) begin[digit + 1] += begin[digit];
    for (int64_t i = 0; i < size; ++i) {
      const int32_t n = from ? from[i] : static_cast<int32_t>(i);
      to[begin[digit_of(numbers[n], pass)]++] = n;
    }
    std::swap(from, to);
    if (!to) to = scratch + size;
  }
  return from;
}

}  // namespace cpu
}  // namespace flatshard
