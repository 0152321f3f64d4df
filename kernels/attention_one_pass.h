#pragma once
// The backward pass of attention in one pass (attention_one_pass_sm90.cu): the calls that it supports, and
// its scratch. Neither depends on the GPU, so that a plan of memory agrees with the run.

#include "kernels/attention.h"

namespace flatshard {

// Returns whether the one pass supports heads of this size. Heads of 72 to 96, which the two kernels compute
// as 96, would be padded to 128.
constexpr bool is_one_pass_head(int64_t size) {
  return size % 8 == 0 && size > 0 && (size <= 64 || (size > 96 && size <= 128));
}

// Returns whether the selected tier has the one pass, and the one pass supports the shapes of `a`.
bool is_one_pass(const AttentionBackward& a);

// dq is summed by tiles of queries, each in two halves of 64 rows and 64 columns: below each other for heads
// of up to 64, side by side for larger ones. The halves of tile i of document d are counted as those of tile
// cu_seqlens[d] / rows + d + i of its head, for tiles of `rows` rows; some of them are empty.
constexpr int64_t one_pass_tile_rows(int64_t head_size) { return head_size <= 64 ? 128 : 64; }
inline constexpr int64_t kOnePassHalves = 2, kOnePassColumns = 64;

struct OnePassScratch {
  Tensor dq;      // f32 (Hq, 1 or 2, rows, 64): sums
  Tensor counts;  // i32 (Hq tiles halves + 1): blocks that have added to each half; blocks that have begun

  static OnePassScratch take(Arena& scratch, const AttentionBackward& a);
};

}  // namespace flatshard
