#pragma once
// Sums over the rows of a tensor, with bits independent of the number of threads: one thread sums each block
// of kRowBlock rows into its own row of `partials`, (row_blocks(rows), sums) f32, and the sums of the blocks
// are added in order. The weight gradients of the norms use them. On a GPU, a fixed number of thread blocks
// takes the rows in turn (row_blocks.cuh).

#include <algorithm>

#include "kernels/parallel_write.h"
#include "kernels/row_grid.h"

namespace flatshard {

inline constexpr int64_t kRowBlock = 64;

inline int64_t row_blocks(int64_t rows) { return (rows + kRowBlock - 1) / kRowBlock; }

// The number of rows of partial sums: over the rows of a norm, and for sums of C columns.
inline int64_t partial_rows(Device device, int64_t rows) {
  return device.is_cuda() ? norm_grid_blocks(rows) : row_blocks(rows);
}
inline int64_t partial_rows(Device device, int64_t rows, int64_t C) {
  return device.is_cuda() ? column_sum_parts(rows, C) : row_blocks(rows);
}

// Calls row(r, sums, out) for every row r, which adds its contribution to the sums of its block; they start
// at zero. It may also write an output through `out`, of `written` bytes in total (parallel_write.h).
template <class Row>
void sum_row_blocks(int64_t written, int64_t rows, const Tensor& partials, Row&& row) {
  const auto run_block = [&](int64_t block, auto out) {
    float* sums = partials.as<float>() + block * partials.shape[-1];
    std::fill(sums, sums + partials.shape[-1], 0.0f);
    for (int64_t r = block * kRowBlock; r < std::min(rows, (block + 1) * kRowBlock); ++r) row(r, sums, out);
  };
  parallel_write(written, row_blocks(rows), 1, [&](int64_t begin, int64_t end, auto out) {
    for (int64_t block = begin; block < end; ++block) run_block(block, out);
  });
}

// total += or = columns [column, column + total.size()) of `partials`, in block order.
inline void add_row_blocks(const Tensor& total, const Tensor& partials, bool accumulate, int64_t column = 0) {
  parallel_blocks(total.size(), 256, [&](int64_t begin, int64_t end) {
    float* sum = total.as<float>() + begin;
    if (!accumulate) std::fill(sum, sum + (end - begin), 0.0f);
    for (int64_t block = 0; block < partials.shape[0]; ++block) {
      const float* part = partials.as<float>() + block * partials.shape[-1] + column + begin;
      simd::for_each_vector(end - begin, [&](int64_t i, auto lanes) {
        simd::store(sum + i, simd::load(sum + i, lanes) + simd::load(part + i, lanes), lanes);
      });
    }
  });
}

}  // namespace flatshard
