#pragma once
// How the rows of images move through a model that reads them: a function of the frames and of the positions
// of their patches, written on the host and copied to the device with the batch. P patches of F frames become
// R rows of the text:
//   pixel shuffle  R = P / scale^2. A frame is a square of patches, whose squares of scale x scale patches
//                  are rows, by row; the patches of a square too.
//   merger         R = P / scale^2. A frame has any size, and its patches come in the order of their squares.
//                  A tower with windows computes on the patches in the order of windows, and the connector
//                  moves its rows back.
//   perceiver      R = F L, for L latents. Its layers work on rows [patches; latents] of each frame, one
//                  frame after the other; queries are the latents, keys all rows of their frame.

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/context.h"

namespace flatshard {

int64_t image_rows(const VisionConfig& vision, const RowCounts& rows);  // R

// The counts with the most frames, and at most so many patches, that images in these tokens can have: every
// row of an image is a token. Patches that would be less than a row do not count.
RowCounts with_most_images(const VisionConfig& vision, int64_t tokens, int64_t most_patches);
// The most patches of images in so many tokens.
int64_t most_patches(const VisionConfig& vision, int64_t tokens);

// The frames of a batch, on the host.
struct Frames {
  std::span<const int32_t> begins;  // (F + 1), among the patches
  Tensor positions;                 // of the patches (context.h)
};

// The windows of all frames; 0 in a tower without them. An Error if a frame has no squares.
int64_t count_windows(const VisionConfig& vision, const Frames& frames);

// The i32 elements that the moves of images with these counts take, and the moves as views of so many.
int64_t size_of_moves(const VisionConfig& vision, const RowCounts& rows);
ConnectorMoves moves_in(const VisionConfig& vision, const Tensor& space, const RowCounts& rows);
// Writes moves on the host. An Error if a frame cannot be divided into squares.
void write_moves(const VisionConfig& vision, const Frames& frames, const ConnectorMoves& moves);

// The squares of a frame.
struct SquareGrid {
  int64_t rows, columns;
};
// Of the frames of a rotary tower. An Error if a frame cannot be divided into squares.
std::vector<SquareGrid> square_grids(const VisionConfig& vision, const Frames& frames);

// Writes the positions of tokens in time, row and column (3, N), from those in their documents (N). All
// tokens of an image have the time t at which it begins; the square in row y and column x is at t + y and
// t + x. The text after it continues at t plus the longer side. Images come in the order of their tokens. An
// Error if a document ends within an image.
void write_axes(const VisionConfig& vision, std::span<const SquareGrid> images, const Tensor& tokens,
                const Tensor& in_documents, const Tensor& axes);

}  // namespace flatshard
