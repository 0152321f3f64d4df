#include "hub/frame_inputs.h"

#include <algorithm>
#include <span>

#include "runtime/check.h"

namespace flatshard {
namespace {

RowCounts largest_frame(const VisionConfig& vision, int64_t tokens) {
  if (!vision.tower.rotary) return {.tokens = 0, .patches = vision.positions(), .frames = 1};
  RowCounts rows = with_most_images(vision, tokens, most_patches(vision, tokens));
  rows.frames = 1;
  return rows;
}

}  // namespace

FrameInputs::FrameInputs(const VisionConfig& vision, int64_t tokens, Arena& memory, Arena& staging)
    : vision_(vision),
      most_(largest_frame(vision, tokens)),
      rows_(most_),
      patches_(staging, memory.alloc(DType::f32, {most_.patches, vision.patch_width()})),
      indices_(staging,
               memory.alloc(DType::i32, {vision.axes() * most_.patches + 2 + size_of_moves(vision, most_)})) {
}

ImageInputs FrameInputs::inputs_in(const Tensor& patches, const Tensor& indices) const {
  const int64_t P = rows_.patches, axes = vision_.axes(), at = axes * P;
  const Tensor positions = indices.slice(0, at);
  return {.patches = patches.slice(0, P),
          .positions = axes == 1 ? positions : positions.view({axes, P}),
          .frames = indices.slice(at, at + 2),
          .rows = {},
          .moves = moves_in(vision_, indices.slice(at + 2, indices.size()), rows_)};
}

void FrameInputs::write(const PromptImages& images, int64_t frame) {
  rows_ = images.rows_of(frame);
  check(rows_.patches > 0 && rows_.patches <= most_.patches, "a frame of an image has ", rows_.patches,
        " patches, must have 1 to ", most_.patches,
        vision_.tower.rotary ? ", those of a text's tokens" : ", the positions of the model");
  ImageInputs host = inputs_in(patches_.host, indices_.host);
  const int64_t first = images.frames[static_cast<size_t>(frame)], width = vision_.patch_width();
  std::copy_n(images.patches.begin() + first * width, rows_.patches * width, host.patches.as<float>());
  std::copy_n(images.positions.begin() + vision_.axes() * first, host.positions.size(),
              host.positions.as<int32_t>());
  host.frames.as<int32_t>()[0] = 0;
  host.frames.as<int32_t>()[1] = static_cast<int32_t>(rows_.patches);
  const Frames frames{std::span(host.frames.as<int32_t>(), 2), host.positions};
  rows_.windows = count_windows(vision_, frames);
  write_moves(vision_, frames, inputs_in(patches_.host, indices_.host).moves);
}

void FrameInputs::upload(Stream& stream) const {
  patches_.upload(stream, rows_.patches);
  indices_.upload(stream);
}

}  // namespace flatshard
