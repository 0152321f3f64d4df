#include "tools/inference/image_pass.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "model/image_rows.h"
#include "runtime/memory.h"

namespace flatshard {

int64_t common_frames(const PromptImages& a, const PromptImages& b) {
  const int64_t most = std::min(a.frame_count(), b.frame_count());
  int64_t same = 0;
  const auto is_same = [&](int64_t frame) {
    const RowCounts rows = a.rows_of(frame);
    if (rows.patches != b.rows_of(frame).patches || rows.patches == 0) return rows.patches == 0;
    const size_t patches = static_cast<size_t>(a.frames.back()), width = a.patches.size() / patches,
                 axes = a.positions.size() / patches,
                 first = static_cast<size_t>(a.frames[static_cast<size_t>(frame)]),
                 count = static_cast<size_t>(rows.patches);
    const auto equal = [](const auto& left, const auto& right, size_t at, size_t n) {
      return std::equal(left.begin() + static_cast<std::ptrdiff_t>(at),
                        left.begin() + static_cast<std::ptrdiff_t>(at + n),
                        right.begin() + static_cast<std::ptrdiff_t>(at));
    };
    return equal(a.positions, b.positions, first * axes, count * axes) &&
           equal(a.patches, b.patches, first * width, count * width);
  };
  while (same < most && is_same(same)) ++same;
  return same;
}

ImagePass::ImagePass(ModelWeights& weights, DType dtype, int64_t tokens)
    : weights_(weights),
      vision_(*weights.model().config().vision),
      dtype_(dtype),
      most_{.tokens = 0, .patches = vision_.positions(), .frames = 1} {
  if (!vision_.tower.rotary) return;
  most_ = with_most_images(vision_, tokens, most_patches(vision_, tokens));
  most_.frames = 1;
}

void ImagePass::allocate(Arena& memory, Arena& host) {
  const Model& model = weights_.model();
  const Shape largest = model.largest_output(0, model.embedding_layer(), most_);
  x_ = memory.alloc(dtype_, largest);
  y_ = memory.alloc(dtype_, largest);
  patches_ = memory.alloc(DType::f32, {most_.patches, vision_.patch_width()});
  indices_ = memory.alloc(DType::i32, {vision_.axes() * most_.patches + 2 + size_of_moves(vision_, most_)});
  host_patches_ = host.alloc(DType::f32, patches_.shape);
  host_indices_ = host.alloc(DType::i32, indices_.shape);
}

void ImagePass::plan(Stream& stream, Arena& scratch, Arena& saved) { forward(stream, most_, scratch, saved); }

int64_t ImagePass::rows_of(const PromptImages& images, int64_t frame) const {
  return image_rows(vision_, images.rows_of(frame));
}

std::vector<SquareGrid> ImagePass::grids(const PromptImages& images) const {
  std::vector<SquareGrid> all;
  std::vector<int32_t> positions = images.positions;
  for (int64_t frame = 0; frame < images.frame_count(); ++frame) {
    const int64_t patches = images.rows_of(frame).patches;
    const std::array ends{0, static_cast<int32_t>(patches)};
    int32_t* first = positions.data() + 2 * images.frames[static_cast<size_t>(frame)];
    all.push_back(square_grids(vision_, {ends, tensor_of(first, {2, patches})}).front());
  }
  return all;
}

ImageInputs ImagePass::inputs_in(const Tensor& patches, const Tensor& indices, const RowCounts& rows) const {
  const int64_t P = rows.patches, axes = vision_.axes(), at = axes * P;
  const Tensor positions = indices.slice(0, at);
  return {.patches = patches.slice(0, P),
          .positions = axes == 1 ? positions : positions.view({axes, P}),
          .frames = indices.slice(at, at + 2),
          .rows = {},
          .moves = moves_in(vision_, indices.slice(at + 2, indices.size()), rows)};
}

void ImagePass::run(Stream& stream, const PromptImages& images, int64_t frame, const Tensor& rows,
                    Arena& scratch, Arena& saved) {
  RowCounts counts = images.rows_of(frame);
  check(counts.patches > 0 && counts.patches <= most_.patches, "a frame of an image has ", counts.patches,
        " patches, must have 1 to ", most_.patches,
        vision_.tower.rotary ? ", those of a text's tokens" : ", the positions of the model");
  ImageInputs host = inputs_in(host_patches_, host_indices_, counts);
  const int64_t first = images.frames[static_cast<size_t>(frame)], width = vision_.patch_width();
  std::copy_n(images.patches.begin() + first * width, counts.patches * width, host.patches.as<float>());
  std::copy_n(images.positions.begin() + vision_.axes() * first, host.positions.size(),
              host.positions.as<int32_t>());
  host.frames.as<int32_t>()[0] = 0;
  host.frames.as<int32_t>()[1] = static_cast<int32_t>(counts.patches);
  const Frames frames{std::span(host.frames.as<int32_t>(), 2), host.positions};
  counts.windows = count_windows(vision_, frames);
  host = inputs_in(host_patches_, host_indices_, counts);
  write_moves(vision_, frames, host.moves);
  forward(stream, counts, scratch, saved);
  copy(stream, rows, x_.beginning(rows.shape));
  stream.sync();
}

// The output of the last layer is in x_.
void ImagePass::forward(Stream& stream, const RowCounts& rows, Arena& scratch, Arena& saved) {
  const ImageInputs images = inputs_in(patches_, indices_, rows);
  copy(stream, images.patches, host_patches_.slice(0, rows.patches));
  copy(stream, indices_, host_indices_);
  Context c{.stream = stream,
            .scratch = scratch,
            .saved = saved,
            .tokens = {},
            .positions = {},
            .boundaries = {},
            .targets = {},
            .target_weights = {},
            .losses = {},
            .images = images,
            .dtype = dtype_};
  Model& model = weights_.model();
  const int end = model.embedding_layer();
  Tensor x;
  for (int i = 0; i < end; ++i) {
    const ArenaScope scope(saved);
    const int next = i + 1 < end ? i + 1 : kNoLayer;
    const Tensor y = y_.beginning(model.output(i, rows));
    model.layer(i).forward(c, weights_.acquire(i, next, stream), y, x);
    weights_.release(i, next, stream);
    std::swap(x_, y_);
    x = y;
  }
}

}  // namespace flatshard
