#include "train/step/lane_inputs.h"

#include <algorithm>
#include <span>

#include "model/image_rows.h"

namespace flatshard {
namespace {

int64_t size_of_indices(const VisionConfig& vision, const RowCounts& rows) {
  return vision.axes() * rows.patches + rows.frames + 1 + image_rows(vision, rows) +
         size_of_moves(vision, rows);
}

Frames frames_of(const ImageInputs& host) {
  return {{host.frames.as<int32_t>(), static_cast<size_t>(host.frames.size())}, host.positions};
}

}  // namespace

LaneInputs::LaneInputs(const RunSetup& setup, int64_t sequences, MemoryPlan& memory, bool has_answers)
    : vision_(setup.model.vision),
      tokens_(sequences * setup.seq_len()),
      has_axes_(family(setup.model.family).rope_axes),
      most_(setup.most_rows(sequences)),
      rows_(most_) {
  // The number of boundaries, less one.
  const int64_t most_documents = setup.mask_documents() ? tokens_ : sequences;
  text_ = Mirror(memory.staging,
                 memory.batch.alloc(DType::i32, {(has_axes_ ? 6 : 3) * tokens_ + most_documents + 1}));
  batch_ = text_in(text_.device);
  if (has_answers && setup.config.loss.is_used()) {
    loss_ = setup.config.loss;
    example_count_ = most_examples(tokens_, loss_->answers_of_example());
    examples_ = Mirror(memory.staging, memory.batch.alloc(DType::i32, {example_count_, 3}));
    values_ =
        Mirror(memory.staging, memory.batch.alloc(DType::f32, {std::ssize(columns_of(*loss_)), tokens_}));
  }
  if (!vision_) return;
  patches_ = Mirror(memory.staging, memory.batch.alloc(DType::f32, {most_.patches, vision_->patch_width()}));
  indices_ = Mirror(memory.staging, memory.batch.alloc(DType::i32, {size_of_indices(*vision_, most_)}));
  images_ = images_in(indices_.device, patches_.device, most_);
}

Batch LaneInputs::text_in(const Tensor& space) const {
  const auto part = [&](int64_t i) { return space.slice(i * tokens_, (i + 1) * tokens_); };
  return {.tokens = part(0),
          .positions = part(1),
          .targets = part(2),
          .boundaries = space.slice((has_axes_ ? 6 : 3) * tokens_, space.size())};
}

AnswerInputs LaneInputs::answers_in(bool on_device, const AnswerFactors& factors) const {
  return {.loss = *loss_,
          .factors = factors,
          .examples = (on_device ? examples_.device : examples_.host).slice(0, example_count_),
          .values = on_device ? values_.device : values_.host};
}

Tensor LaneInputs::axes_in(const Tensor& space) const {
  return space.slice(3 * tokens_, 6 * tokens_).view({3, tokens_});
}

// Every part has space for the most rows, and is cut to `rows`.
ImageInputs LaneInputs::images_in(const Tensor& indices, const Tensor& patches, const RowCounts& rows) const {
  int64_t at = 0;
  const auto part = [&](int64_t most, int64_t size) {
    at += most;
    return indices.slice(at - most, at - most + size);
  };
  const int64_t axes = vision_->axes();
  const Tensor positions = part(axes * most_.patches, axes * rows.patches);
  ImageInputs images{.patches = patches.slice(0, rows.patches),
                     .positions = axes == 1 ? positions : positions.view({axes, rows.patches}),
                     .frames = part(most_.frames + 1, rows.frames + 1),
                     .rows = part(image_rows(*vision_, most_), image_rows(*vision_, rows)),
                     .moves = {}};
  images.moves = moves_in(*vision_, indices.slice(at, indices.size()), rows);
  return images;
}

void LaneInputs::read(const Data& data, int64_t data_step, int64_t lane, Stream& stream) {
  Batch space = text_in(text_.host);
  if (vision_) {
    const ImageInputs room = images_in(indices_.host, patches_.host, most_);
    space.images = {.patches = room.patches,
                    .patch_positions = room.positions.view({vision_->axes(), most_.patches}),
                    .frames = room.frames,
                    .rows = room.rows};
  }
  if (loss_) space.answers = {.examples = examples_.host, .values = values_.host};
  const Batch on_host = data.read(data_step, lane, space);
  if (loss_) example_count_ = on_host.answers.examples.shape[0];
  if (vision_) take_images(on_host.images, stream);
  if (has_axes_) {
    const Frames frames = frames_of(images_in(indices_.host, patches_.host, rows_));
    write_axes(*vision_, square_grids(*vision_, frames), on_host.tokens, on_host.positions,
               axes_in(text_.host));
  }
  text_.upload(stream);
  if (loss_) {
    examples_.upload(stream);
    values_.upload(stream);
  }
  batch_ = text_in(text_.device);
  batch_.boundaries = batch_.boundaries.slice(0, on_host.boundaries.size());
  if (has_axes_) batch_.positions = axes_in(text_.device);
}

void LaneInputs::plan_read(Stream& stream) const {
  text_.upload(stream);
  if (loss_) {
    examples_.upload(stream);
    values_.upload(stream);
  }
  if (!vision_) return;
  indices_.upload(stream);
  patches_.upload(stream, most_.patches);
}

void LaneInputs::take_images(const ImageBatch& on_host, Stream& stream) {
  rows_ = {.tokens = tokens_,
           .patches = on_host.patch_positions.size() / vision_->axes(),
           .frames = std::max<int64_t>(on_host.frames.size() - 1, 0)};
  ImageInputs host = images_in(indices_.host, patches_.host, rows_);
  host.frames.as<int32_t>()[0] = 0;
  rows_.windows = count_windows(*vision_, frames_of(host));
  host = images_in(indices_.host, patches_.host, rows_);
  write_moves(*vision_, frames_of(host), host.moves);
  indices_.upload(stream);
  patches_.upload(stream, rows_.patches);
  images_ = images_in(indices_.device, patches_.device, rows_);
}

}  // namespace flatshard
