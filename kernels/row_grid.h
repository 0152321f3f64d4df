#pragma once
// The division of sums over rows among a GPU's thread blocks (row_blocks.cuh), which also determines their
// scratch.

#include <algorithm>
#include <cstdint>

namespace flatshard {

// Two thread blocks for each of the 132 SMs of an H100 or H200. It is the same on any GPU, as the bits of
// sums depend on it.
inline constexpr int64_t kRowGridBlocks = 264;

// The thread blocks of the backward pass of a norm. Each takes at least kGridRows rows, so that partial sums
// are a small part of the traffic.
inline constexpr int64_t kGridRows = 16;
inline int64_t norm_grid_blocks(int64_t rows) {
  return std::min((rows + kGridRows - 1) / kGridRows, kRowGridBlocks);
}

// A GPU cuts the rows of column sums into parts of at least kPartRows rows. Each thread block sums
// kColumnSlice columns of a part, kColumnRows rows at a time; there are about kRowGridBlocks blocks.
inline constexpr int64_t kColumnSlice = 256, kColumnRows = 16, kPartRows = 4 * kColumnRows;
inline int64_t column_sum_parts(int64_t rows, int64_t C) {
  const int64_t slices = (C + kColumnSlice - 1) / kColumnSlice;
  const int64_t most = std::max<int64_t>(kRowGridBlocks / std::max<int64_t>(slices, 1), 1);
  return std::min(most, (rows + kPartRows - 1) / kPartRows);
}

}  // namespace flatshard
