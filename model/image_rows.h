#pragma once
// The moves of image rows through a model that reads images. They are a function of the frames and of the
// positions of their patches, written on the host and copied to the device with the batch. P patches of F
// frames become R rows of the text:
//   pixel shuffle  R = P / scale^2. A frame is a square of patches. Its squares of scale x scale patches
//                  become rows, in row-major order, and so are the patches of a square.
//   merger         R = P / scale^2. A frame has any size, and its patches come in the order of their squares.
//                  A tower with windows computes on the patches in the order of windows, and the connector
//                  moves its rows back.
//   perceiver      R = F L, for L latents. Its layers work on rows [patches; latents] of each frame, one
//                  frame after the other; queries are the latents, keys all rows of their frame.

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/layer_call.h"

namespace flatshard {

int64_t image_rows(const VisionConfig& vision, const RowCounts& rows);  // R

// The counts of the images with the most frames that fit into these tokens, with at most `most_patches`
// patches: every row of an image is a token. Patches that do not fill a row do not count.
RowCounts with_most_images(const VisionConfig& vision, int64_t tokens, int64_t most_patches);
// The most patches that images in this many tokens can have.
int64_t most_patches(const VisionConfig& vision, int64_t tokens);

// The frames of a batch, on the host.
struct Frames {
  std::span<const int32_t> begins;  // (F + 1): where frames begin among the patches
  Tensor positions;                 // positions of the patches (layer_call.h)
};

// The number of windows of all frames; 0 for a tower without windows. Throws an Error if a frame has no
// squares.
int64_t count_windows(const VisionConfig& vision, const Frames& frames);

// The number of i32 elements that the moves of images with these counts take, and the moves as views of
// `space`, which has this many.
int64_t size_of_moves(const VisionConfig& vision, const RowCounts& rows);
ConnectorMoves moves_in(const VisionConfig& vision, const Tensor& space, const RowCounts& rows);
// Writes moves on the host. Throws an Error if a frame cannot be divided into squares.
void write_moves(const VisionConfig& vision, const Frames& frames, const ConnectorMoves& moves);

// The numbers of rows and columns of a frame's squares.
struct SquareGrid {
  int64_t rows, columns;
};
// The grids of the frames of a rotary tower. Throws an Error if a frame cannot be divided into squares.
std::vector<SquareGrid> square_grids(const VisionConfig& vision, const Frames& frames);

// Writes the positions of tokens in time, row and column (3, N), from the positions in their documents (N).
// All tokens of an image have the time t at which it begins; the square in row y and column x is at t + y and
// t + x. The text after it continues at t plus the longer side. Images come in the order of their tokens.
// Throws an Error if a document ends within an image.
void write_axes(const VisionConfig& vision, std::span<const SquareGrid> images, const Tensor& tokens,
                const Tensor& in_documents, const Tensor& axes);

}  // namespace flatshard
