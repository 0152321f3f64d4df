#include "model/image_rows.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"

namespace flatshard {
namespace {

bool shuffles(const VisionConfig& vision) { return vision.connector == ConnectorKind::pixel_shuffle; }

void write_squares(int64_t scale, std::span<const int32_t> frames, int32_t* squares) {
  for (size_t frame = 0; frame + 1 < frames.size(); ++frame) {
    const int64_t first = frames[frame], patches = frames[frame + 1] - first;
    const int64_t side = std::llround(std::sqrt(static_cast<double>(patches)));
    check(side * side == patches && side % scale == 0, "a frame of ", patches, " patches has no squares of ",
          scale, " x ", scale, " patches");
    for (int64_t row = 0; row < side; row += scale)
      for (int64_t column = 0; column < side; column += scale)
        for (int64_t dy = 0; dy < scale; ++dy)
          for (int64_t dx = 0; dx < scale; ++dx)
            *squares++ = static_cast<int32_t>(first + (row + dy) * side + column + dx);
  }
}

void write_perceiver_moves(int64_t latents, std::span<const int32_t> frames, const ConnectorMoves& moves) {
  int32_t *patch = moves.patches.as<int32_t>(), *latent = moves.latents.as<int32_t>(),
          *index = moves.latent_of_row.as<int32_t>(), *queries = moves.query_ends.as<int32_t>(),
          *keys = moves.key_ends.as<int32_t>();
  int32_t row = *queries = *keys = 0;
  for (size_t frame = 0; frame + 1 < frames.size(); ++frame) {
    for (int32_t i = frames[frame]; i < frames[frame + 1]; ++i) *patch++ = row++;
    for (int32_t i = 0; i < latents; ++i) {
      *latent++ = row++;
      *index++ = i;
    }
    queries[frame + 1] = queries[frame] + static_cast<int32_t>(latents);
    keys[frame + 1] = row;
  }
}

}  // namespace

int64_t image_rows(const VisionConfig& vision, const RowCounts& rows) {
  return shuffles(vision) ? rows.patches / (vision.scale * vision.scale)
                          : rows.frames * vision.perceiver.latents;
}

int64_t most_patches(const VisionConfig& vision, int64_t tokens) {
  if (shuffles(vision)) return tokens * vision.scale * vision.scale;
  return tokens / vision.perceiver.latents * vision.positions();
}

RowCounts with_most_images(const VisionConfig& vision, int64_t tokens, int64_t most) {
  const int64_t patches = std::min(most, most_patches(vision, tokens));
  const int64_t of_frame = shuffles(vision) ? vision.scale * vision.scale : 1;  // at least
  int64_t frames = patches / of_frame;
  if (!shuffles(vision)) frames = std::min(frames, tokens / vision.perceiver.latents);
  return {.tokens = tokens, .patches = patches, .frames = frames};
}

int64_t size_of_moves(const VisionConfig& vision, const RowCounts& rows) {
  if (shuffles(vision)) return rows.patches;
  return rows.patches + 2 * image_rows(vision, rows) + 2 * (rows.frames + 1);
}

ConnectorMoves moves_in(const VisionConfig& vision, const Tensor& space, const RowCounts& rows) {
  int64_t at = 0;
  const auto part = [&](int64_t size) {
    at += size;
    return space.slice(at - size, at);
  };
  ConnectorMoves moves;
  if (shuffles(vision)) {
    moves.squares = part(rows.patches);
    return moves;
  }
  moves.patches = part(rows.patches);
  moves.latents = part(image_rows(vision, rows));
  moves.latent_of_row = part(image_rows(vision, rows));
  moves.query_ends = part(rows.frames + 1);
  moves.key_ends = part(rows.frames + 1);
  return moves;
}

void write_moves(const VisionConfig& vision, std::span<const int32_t> frames, const ConnectorMoves& moves) {
  if (shuffles(vision)) return write_squares(vision.scale, frames, moves.squares.as<int32_t>());
  write_perceiver_moves(vision.perceiver.latents, frames, moves);
}

}  // namespace flatshard
