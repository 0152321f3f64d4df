#include "tools/inference/image_pass.h"

#include <algorithm>
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
    const size_t width = a.patches.size() / a.positions.size(),
                 first = static_cast<size_t>(a.frames[static_cast<size_t>(frame)]),
                 count = static_cast<size_t>(rows.patches);
    const auto equal = [](const auto& left, const auto& right, size_t at, size_t n) {
      return std::equal(left.begin() + static_cast<std::ptrdiff_t>(at),
                        left.begin() + static_cast<std::ptrdiff_t>(at + n),
                        right.begin() + static_cast<std::ptrdiff_t>(at));
    };
    return equal(a.positions, b.positions, first, count) &&
           equal(a.patches, b.patches, first * width, count * width);
  };
  while (same < most && is_same(same)) ++same;
  return same;
}

ImagePass::ImagePass(ModelWeights& weights, DType dtype)
    : weights_(weights),
      vision_(*weights.model().config().vision),
      dtype_(dtype),
      most_{.tokens = 0, .patches = vision_.positions(), .frames = 1} {}

void ImagePass::allocate(Arena& memory, Arena& host) {
  const Model& model = weights_.model();
  const Shape largest = model.largest_output(0, model.embedding_layer(), most_);
  x_ = memory.alloc(dtype_, largest);
  y_ = memory.alloc(dtype_, largest);
  patches_ = memory.alloc(DType::f32, {most_.patches, vision_.patch_width()});
  indices_ = memory.alloc(DType::i32, {most_.patches + 2 + size_of_moves(vision_, most_)});
  host_patches_ = host.alloc(DType::f32, patches_.shape);
  host_indices_ = host.alloc(DType::i32, indices_.shape);
}

void ImagePass::plan(Stream& stream, Arena& scratch, Arena& saved) { forward(stream, most_, scratch, saved); }

int64_t ImagePass::rows_of(const PromptImages& images, int64_t frame) const {
  return image_rows(vision_, images.rows_of(frame));
}

ImageInputs ImagePass::inputs_in(const Tensor& patches, const Tensor& indices, const RowCounts& rows) const {
  const int64_t P = rows.patches;
  return {.patches = patches.slice(0, P),
          .positions = indices.slice(0, P),
          .frames = indices.slice(P, P + 2),
          .rows = {},
          .moves = moves_in(vision_, indices.slice(P + 2, indices.size()), rows)};
}

void ImagePass::run(Stream& stream, const PromptImages& images, int64_t frame, const Tensor& rows,
                    Arena& scratch, Arena& saved) {
  const RowCounts counts = images.rows_of(frame);
  check(counts.patches > 0 && counts.patches <= most_.patches, "a frame of an image has ", counts.patches,
        " patches, must have 1 to ", most_.patches, ", the positions of the model");
  const ImageInputs host = inputs_in(host_patches_, host_indices_, counts);
  const int64_t first = images.frames[static_cast<size_t>(frame)], width = vision_.patch_width();
  std::copy_n(images.patches.begin() + first * width, counts.patches * width, host.patches.as<float>());
  std::copy_n(images.positions.begin() + first, counts.patches, host.positions.as<int32_t>());
  host.frames.as<int32_t>()[0] = 0;
  host.frames.as<int32_t>()[1] = static_cast<int32_t>(counts.patches);
  write_moves(vision_, std::span(host.frames.as<int32_t>(), 2), host.moves);
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
