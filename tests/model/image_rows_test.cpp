#include "model/image_rows.h"

#include <vector>

#include "tests/test.h"

using namespace flatshard;

namespace {

using Indices = std::vector<int32_t>;

constexpr int32_t kImage = 9;

Tensor view_of(Indices& values, const Shape& shape) {
  return {values.data(), DType::i32, shape, Device::cpu()};
}

VisionConfig rotary(int64_t window = 0) {
  VisionConfig vision{.image_token = kImage, .window = window, .connector = ConnectorKind::merger};
  vision.tower.rotary = true;
  return vision;
}

// Times, rows and columns of tokens.
Indices axes_of(Indices tokens, Indices in_documents, const std::vector<SquareGrid>& images) {
  const int64_t N = std::ssize(tokens);
  Indices axes(static_cast<size_t>(3 * N));
  write_axes(rotary(), images, view_of(tokens, {N}), view_of(in_documents, {N}), view_of(axes, {3, N}));
  return axes;
}

// Rows and columns of the patches of frames with so many rows and columns of squares of 2 x 2.
struct Patches {
  explicit Patches(const std::vector<SquareGrid>& grids) {
    Indices columns;
    for (const auto [squares_down, squares_across] : grids) {
      for (int32_t i = 0; i < squares_down * squares_across * 4; ++i) {
        const auto across = static_cast<int32_t>(squares_across), square = i / 4;
        positions.push_back(square / across * 2 + i % 4 / 2);
        columns.push_back(square % across * 2 + i % 2);
      }
      begins.push_back(static_cast<int32_t>(positions.size()));
    }
    positions.insert(positions.end(), columns.begin(), columns.end());
  }
  Frames frames() { return {begins, view_of(positions, {2, std::ssize(positions) / 2})}; }

  Indices begins{0}, positions;
};

}  // namespace

TEST_CASE("text after an image continues behind its longer side, and in a new document from 0") {
  CHECK(axes_of({1, kImage, kImage, kImage, kImage, kImage, kImage, 2, 3, 1, kImage, 5},
                {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2},
                {{2, 3}, {1, 1}}) == Indices{0, 1, 1, 1, 1, 1, 1, 4, 5, 0, 1, 2,  //
                                             0, 1, 1, 1, 2, 2, 2, 4, 5, 0, 1, 2,  //
                                             0, 1, 2, 3, 1, 2, 3, 4, 5, 0, 1, 2});
  CHECK(axes_of({kImage, kImage}, {0, 1}, {}) == Indices{0, 1, 0, 1, 0, 1});  // text, without images
  for (const Indices& in_documents : {Indices{0, 1, 2}, Indices{0, 1, 0}})
    CHECK(test::missing_from(test::error_of([&] {
                               axes_of({1, kImage, kImage}, in_documents, {{2, 2}});
                             }),
                             {"4 tokens", "begins at 1", "ends"}) == "");
  CHECK(test::error_of([] { axes_of({1, kImage, kImage}, {0, 1, 0}, {{1, 2}}); }) != "");
}

TEST_CASE("the most patches of images are those of whole rows") {
  VisionConfig latents{
      .patch_size = 2, .image_size = 12, .image_token = kImage, .connector = ConnectorKind::perceiver};
  latents.perceiver.latents = 3;
  const VisionConfig shuffled{.image_token = kImage, .scale = 3, .connector = ConnectorKind::pixel_shuffle};
  for (const auto& [vision, rows] : {std::pair{rotary(2), 16}, {shuffled, 7}}) {
    const RowCounts most = with_most_images(vision, 100, 66);
    CHECK(most.patches == rows * vision.square());
    CHECK(most.frames == rows);
    CHECK(image_rows(vision, most) == rows);
    CHECK(with_most_images(vision, 5, 66).patches == 5 * vision.square());
    CHECK(with_most_images(vision, 100, 3).patches == 0);
  }
  CHECK(with_most_images(latents, 100, 66).patches == 66);
}

TEST_CASE("squares are sorted by window, those at the edges into smaller ones") {
  const VisionConfig vision = rotary(2);
  Patches patches({{3, 3}, {1, 2}});
  const int64_t P = patches.begins.back();
  RowCounts rows{.patches = P, .frames = 2, .windows = count_windows(vision, patches.frames())};
  CHECK(rows.windows == 5);
  Indices space(static_cast<size_t>(size_of_moves(vision, rows)));
  const ConnectorMoves moves = moves_in(vision, view_of(space, {std::ssize(space)}), rows);
  write_moves(vision, patches.frames(), moves);
  const auto values = [](const Tensor& t) { return Indices(t.as<int32_t>(), t.as<int32_t>() + t.size()); };
  CHECK(values(moves.windowed_rows) == Indices{0, 1, 3, 4, 2, 5, 6, 7, 8, 9, 10});
  CHECK(values(moves.windows) == Indices{0, 16, 24, 32, 36, 44});
  for (int64_t i = 0; i < P; ++i) {
    const int32_t patch = moves.windowed_patches.as<int32_t>()[i];
    CHECK(patch == values(moves.windowed_rows)[static_cast<size_t>(i / 4)] * 4 + i % 4);
    for (const int64_t axis : {0, 1})
      CHECK(moves.windowed_positions.as<int32_t>()[axis * P + i] ==
            patches.positions[static_cast<size_t>(axis * P + patch)]);
  }
}

TEST_CASE("a frame that cannot be divided into squares is refused with its size") {
  Patches patches({{2, 2}});
  patches.begins.back() -= 2;
  CHECK(test::missing_from(test::error_of([&] { square_grids(rotary(), patches.frames()); }),
                           {"14 patches", "2 x 2"}) == "");
}
