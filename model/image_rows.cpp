#include "model/image_rows.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"

namespace flatshard {
namespace {

bool resamples(const VisionConfig& vision) { return vision.connector == ConnectorKind::perceiver; }

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
  return resamples(vision) ? rows.frames * vision.perceiver.latents : rows.patches / vision.square();
}

int64_t most_patches(const VisionConfig& vision, int64_t tokens) {
  if (resamples(vision)) return tokens / vision.perceiver.latents * vision.positions();
  return tokens * vision.square();
}

RowCounts with_most_images(const VisionConfig& vision, int64_t tokens, int64_t most) {
  // The fewest patches of a frame; other numbers are multiples of it.
  const int64_t of_frame = resamples(vision) ? 1 : vision.square();
  const int64_t patches = std::min(most, most_patches(vision, tokens)) / of_frame * of_frame;
  int64_t frames = patches / of_frame;
  if (resamples(vision)) frames = std::min(frames, tokens / vision.perceiver.latents);
  return {.tokens = tokens,
          .patches = patches,
          .frames = frames,
          .windows = vision.window > 0 ? patches / vision.square() : 0};
}

std::vector<SquareGrid> square_grids(const VisionConfig& vision, const Frames& frames) {
  std::vector<SquareGrid> grids;
  const int32_t* row = frames.positions.as<int32_t>();
  const int32_t* column = row + frames.positions.size() / 2;
  for (size_t frame = 0; frame + 1 < frames.begins.size(); ++frame) {
    const int32_t patches = frames.begins[frame + 1] - frames.begins[frame];
    if (patches == 0) {
      grids.push_back({0, 0});
      continue;
    }
    const int32_t last = frames.begins[frame + 1] - 1;  // the patch at the bottom right
    const int64_t rows = row[last] + 1, columns = column[last] + 1;
    check(rows * columns == patches && rows % vision.scale == 0 && columns % vision.scale == 0, "a frame of ",
          patches, " patches in ", rows, " rows of ", columns, " has no squares of ", vision.scale, " x ",
          vision.scale, " patches");
    grids.push_back({rows / vision.scale, columns / vision.scale});
  }
  return grids;
}

int64_t count_windows(const VisionConfig& vision, const Frames& frames) {
  if (vision.window == 0) return 0;
  const auto windows_along = [&](int64_t squares) { return (squares + vision.window - 1) / vision.window; };
  int64_t windows = 0;
  for (const SquareGrid& grid : square_grids(vision, frames))
    windows += windows_along(grid.rows) * windows_along(grid.columns);
  return windows;
}

int64_t size_of_moves(const VisionConfig& vision, const RowCounts& rows) {
  switch (vision.connector) {
    case ConnectorKind::pixel_shuffle:
      return rows.patches;
    case ConnectorKind::merger:
      return vision.window == 0 ? 0 : 3 * rows.patches + image_rows(vision, rows) + rows.windows + 1;
    case ConnectorKind::perceiver:
      return rows.patches + 2 * image_rows(vision, rows) + 2 * (rows.frames + 1);
  }
  return 0;
}

ConnectorMoves moves_in(const VisionConfig& vision, const Tensor& space, const RowCounts& rows) {
  int64_t at = 0;
  const auto part = [&](int64_t size) {
    at += size;
    return space.slice(at - size, at);
  };
  ConnectorMoves moves;
  switch (vision.connector) {
    case ConnectorKind::pixel_shuffle:
      moves.squares = part(rows.patches);
      break;
    case ConnectorKind::merger:
      if (vision.window == 0) break;
      moves.windowed_patches = part(rows.patches);
      moves.windowed_rows = part(image_rows(vision, rows));
      moves.windowed_positions = part(2 * rows.patches).view({2, rows.patches});
      moves.windows = part(rows.windows + 1);
      break;
    case ConnectorKind::perceiver:
      moves.patches = part(rows.patches);
      moves.latents = part(image_rows(vision, rows));
      moves.latent_of_row = part(image_rows(vision, rows));
      moves.query_ends = part(rows.frames + 1);
      moves.key_ends = part(rows.frames + 1);
      break;
  }
  return moves;
}

namespace {

// The windows of a frame, and the squares of a window, are in row-major order. Windows at the edges may be
// smaller.
void write_windows(const VisionConfig& vision, const Frames& frames, const ConnectorMoves& moves) {
  const int64_t size = vision.window, square = vision.square(), P = moves.windowed_patches.size();
  int32_t *row = moves.windowed_rows.as<int32_t>(), *window = moves.windows.as<int32_t>();
  int64_t first = 0, written = 0;
  *window = 0;
  for (const auto [rows, columns] : square_grids(vision, frames)) {
    for (int64_t top = 0; top < rows; top += size)
      for (int64_t left = 0; left < columns; left += size) {
        for (int64_t y = top; y < std::min(rows, top + size); ++y)
          for (int64_t x = left; x < std::min(columns, left + size); ++x)
            row[written++] = static_cast<int32_t>(first + y * columns + x);
        *++window = static_cast<int32_t>(written * square);
      }
    first += rows * columns;
  }
  const int32_t* position = frames.positions.as<int32_t>();
  int32_t *patch = moves.windowed_patches.as<int32_t>(), *moved = moves.windowed_positions.as<int32_t>();
  for (int64_t i = 0; i < P; ++i) {
    patch[i] = static_cast<int32_t>(row[i / square] * square + i % square);
    for (const int64_t axis : {0, 1}) moved[axis * P + i] = position[axis * P + patch[i]];
  }
}

}  // namespace

void write_moves(const VisionConfig& vision, const Frames& frames, const ConnectorMoves& moves) {
  switch (vision.connector) {
    case ConnectorKind::pixel_shuffle:
      return write_squares(vision.scale, frames.begins, moves.squares.as<int32_t>());
    case ConnectorKind::merger:
      return vision.window > 0 ? write_windows(vision, frames, moves) : void(square_grids(vision, frames));
    case ConnectorKind::perceiver:
      return write_perceiver_moves(vision.perceiver.latents, frames.begins, moves);
  }
}

void write_axes(const VisionConfig& vision, std::span<const SquareGrid> images, const Tensor& tokens,
                const Tensor& in_documents, const Tensor& axes) {
  const int64_t N = tokens.size();
  const int32_t *token = tokens.as<int32_t>(), *in_document = in_documents.as<int32_t>();
  int32_t *time = axes.as<int32_t>(), *row = time + N, *column = row + N;
  int32_t next = 0;
  size_t image = 0;
  for (int64_t i = 0; i < N;) {
    if (in_document[i] == 0) next = 0;
    if (token[i] != vision.image_token || image == images.size()) {
      time[i] = row[i] = column[i] = next++;
      ++i;
      continue;
    }
    const auto [rows, columns] = images[image++];
    const int64_t end = i + rows * columns;
    check(end <= N && (end == i || in_document[end - 1] == in_document[i] + end - 1 - i), "an image of ",
          rows * columns, " tokens begins at ", i, ", but its document ends before they do");
    for (int32_t y = 0; y < rows; ++y)
      for (int32_t x = 0; x < columns; ++x, ++i) {
        time[i] = next;
        row[i] = next + y;
        column[i] = next + x;
      }
    next += static_cast<int32_t>(std::max(rows, columns));
  }
}

}  // namespace flatshard
