#pragma once
// How the rows of images move through a connector: a function of the frames alone, written on the host and
// copied to the device with the batch. P patches of F frames become R rows of the text:
//   pixel shuffle  R = P / scale^2. A frame is a square of patches, whose squares of scale x scale patches
//   are
//                  rows, by row; the patches of a square too.
//   perceiver      R = F L, for L latents. Its layers work on rows [patches; latents] of each frame, one
//   frame
//                  after the other; queries are the latents, keys all rows of their frame.

#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/context.h"

namespace flatshard {

int64_t image_rows(const VisionConfig& vision, const RowCounts& rows);  // R

// The counts with the most frames, and at most so many patches, that images in these tokens can have: every
// row of an image is a token.
RowCounts with_most_images(const VisionConfig& vision, int64_t tokens, int64_t most_patches);
// The most patches of images in so many tokens.
int64_t most_patches(const VisionConfig& vision, int64_t tokens);

// The i32 elements that the moves of images with these counts take, and the moves as views of so many.
int64_t size_of_moves(const VisionConfig& vision, const RowCounts& rows);
ConnectorMoves moves_in(const VisionConfig& vision, const Tensor& space, const RowCounts& rows);
// Writes moves on the host. frames (F + 1): where frames begin among the patches. An Error if a frame cannot
// be divided into squares.
void write_moves(const VisionConfig& vision, std::span<const int32_t> frames, const ConnectorMoves& moves);

}  // namespace flatshard
