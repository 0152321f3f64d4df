#include "tools/inference/loss_meter.h"

#include <algorithm>

#include "model/image_rows.h"
#include "runtime/memory.h"
#include "text/data/data.h"

namespace flatshard {
namespace {

ModelConfig config_for(const ModelSource& source, int64_t seq_len) {
  ModelConfig config = read_model_config(source);
  check(seq_len >= 1 && seq_len <= config.max_positions, "--seq-len is ", seq_len, ", must be from 1 to ",
        config.max_positions, ", the positions of ", published_config_path(source.folder));
  config.context = seq_len;
  return config;
}

}  // namespace

int64_t LossDocument::inputs() const {
  const int64_t count = std::ssize(tokens);
  return !images.empty() && images.back().end == count ? count : count - 1;
}

void cut_windows(const LossDocument& document, int64_t seq_len, const TakeWindow& take) {
  const auto& [tokens, trained, images, where] = document;
  const int64_t count = std::ssize(tokens);
  if (count < 2) return;
  size_t image = 0;
  for (int64_t begin = 0, end = 0; begin < document.inputs(); begin = end) {
    end = std::min(begin + seq_len, document.inputs());  // end of the inputs; the last target is tokens[end]
    for (size_t i = image; i < images.size() && images[i].begin < end; ++i)
      if (images[i].end > end) end = images[i].begin;
    check(end > begin, where, ": an image has ", image < images.size() ? images[image].end - begin : 0,
          " tokens, which fit no window of ", seq_len, ": raise --seq-len");
    const auto part =
        tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(end + 1, count) - begin));
    LossWindow window{{part.begin(), part.end()}, std::vector<uint8_t>(part.size(), 1), end - begin};
    if (!trained.empty()) std::copy_n(trained.begin() + begin, part.size(), window.trained.begin());
    for (; image < images.size() && images[image].begin < end; ++image)
      window.images.push_back(images[image].append);
    if (part.size() > 1) take(std::move(window));
  }
}

LossSum& LossSum::operator+=(const LossSum& more) {
  sum += more.sum;
  targets += more.targets;
  return *this;
}

LossSum sum_of(const LossWindow& window, std::span<const float> losses) {
  LossSum sum;
  for (size_t i = 0; i < losses.size(); ++i)
    if (window.trained[i + 1]) sum += {.sum = static_cast<double>(losses[i]), .targets = 1};
  return sum;
}

LossMeter::LossMeter(const ModelSource& source, DType dtype, int64_t seq_len, Device device)
    : streams_(device),
      stream_(streams_.add("compute")),
      seq_len_(seq_len),
      dtype_(dtype),
      weights_(source, config_for(source, seq_len), dtype, streams_, stream_, nullptr),
      memory_("evaluation", device),
      host_("host", Device::cpu(), Placement::pinned),
      saved_("activations", device),
      scratch_("scratch", device) {
  if (weights_.model().config().vision) image_pass_.emplace(weights_, dtype, seq_len_);
  allocate();
  StreamSet planning(device, {.planning = true});
  Stream& stream = planning.add("compute");
  if (image_pass_) image_pass_->plan(stream, scratch_, saved_);
  run_pass(stream, seq_len_, 0);
  for (Arena* arena : {&memory_, &host_, &saved_, &scratch_}) arena->commit();
  allocate();
}

void LossMeter::allocate() {
  const int64_t hidden = weights_.model().config().hidden;
  x_ = memory_.alloc(dtype_, {seq_len_, hidden});
  y_ = memory_.alloc(dtype_, {seq_len_, hidden});
  inputs_ = memory_.alloc(DType::i32, {(3 + axes()) * seq_len_ + 1 + (image_pass_ ? seq_len_ : 0)});
  target_weights_ = memory_.alloc(DType::f32, {seq_len_});
  losses_ = memory_.alloc(DType::f32, {seq_len_});
  host_inputs_ = host_.alloc(DType::i32, inputs_.shape);
  host_target_weights_ = host_.alloc(DType::f32, target_weights_.shape);
  host_losses_ = host_.alloc(DType::f32, losses_.shape);
  if (config().experts > 0) {
    choices_ = memory_.alloc(DType::i32, {config().layers, seq_len_, config().experts_per_token});
    host_choices_ = host_.alloc(DType::i32, choices_.shape);
  }
  if (!image_pass_) return;
  image_rows_ = memory_.alloc(dtype_, {seq_len_, hidden});
  image_pass_->allocate(memory_, host_);
}

LossMeter::Inputs LossMeter::parts_of(const Tensor& inputs) const {
  const int64_t N = seq_len_, after_targets = (2 + axes()) * N, after_boundaries = after_targets + N + 1;
  return {.tokens = inputs.slice(0, N),
          .positions = inputs.slice(2 * N, after_targets),
          .targets = inputs.slice(N, 2 * N),
          .boundaries = inputs.slice(after_targets, after_boundaries),
          .image_rows = inputs.slice(after_boundaries, inputs.size())};
}

size_t LossMeter::windows_of_pass(std::span<const LossWindow> windows) const {
  int64_t rows = 0;
  size_t count = 0;
  while (count < windows.size() && rows + windows[count].inputs <= seq_len_) rows += windows[count++].inputs;
  check(count > 0, "a window of ", windows.front().inputs, " tokens exceeds the sequence length of ",
        seq_len_);
  return count;
}

std::vector<std::vector<float>> LossMeter::measure(std::span<const LossWindow> windows) {
  check(windows_of_pass(windows) == windows.size(), "the windows exceed a pass of ", seq_len_, " tokens");
  const Inputs host = parts_of(host_inputs_);
  int32_t *tokens = host.tokens.as<int32_t>(), *positions = host.positions.as<int32_t>(),
          *targets = host.targets.as<int32_t>(), *starts = host.boundaries.as<int32_t>();
  int64_t row = 0, documents = 0;
  for (const LossWindow& window : windows) {
    starts[documents++] = static_cast<int32_t>(row);
    for (size_t i = 0; i < static_cast<size_t>(window.inputs); ++i, ++row) {
      tokens[row] = window.tokens[i];
      positions[row] = static_cast<int32_t>(i);
      targets[row] = i + 1 < window.tokens.size() ? window.tokens[i + 1] : kIgnoredTarget;
    }
  }
  if (row < seq_len_) starts[documents++] = static_cast<int32_t>(row);
  for (int64_t i = 0; row < seq_len_; ++row, ++i) {  // padding is a document
    tokens[row] = 0;
    positions[row] = static_cast<int32_t>(i);
    targets[row] = kPaddingTarget;
  }
  starts[documents] = static_cast<int32_t>(seq_len_);
  std::fill_n(host_target_weights_.as<float>(), seq_len_, 1.0f);
  run_pass(stream_, documents, read_images(windows, host));
  stream_.sync();

  std::vector<std::vector<float>> losses;
  const float* next = host_losses_.as<float>();
  for (const LossWindow& window : windows) {
    losses.emplace_back(next, next + window.tokens.size() - 1);
    next += window.inputs;
  }
  return losses;
}

// Computes the rows of all images, writes their positions and, with several axes, the positions of tokens.
// Returns the number of rows.
int64_t LossMeter::read_images(std::span<const LossWindow> windows, const Inputs& host) {
  if (!image_pass_) return 0;
  const VisionConfig& vision = *weights_.model().config().vision;
  const int32_t* const tokens = host.tokens.as<int32_t>();
  PromptImages images;
  int64_t rows = 0, row = 0;
  for (const LossWindow& window : windows) {
    for (const auto& append : window.images) append(images);
    for (const int64_t end = row + window.inputs; row < end; ++row)
      if (!window.images.empty() && tokens[row] == vision.image_token)
        host.image_rows.as<int32_t>()[rows++] = static_cast<int32_t>(row);
  }
  int64_t made = 0;
  for (int64_t frame = 0; frame < images.frame_count(); ++frame) {
    const int64_t begin = made;
    made += image_pass_->rows_of(images, frame);
    check(made <= rows, "the windows have ", rows, " image tokens, but their images have more rows");
    image_pass_->run(stream_, images, frame, image_rows_.slice(begin, made), scratch_, saved_);
  }
  check(made == rows, "the windows have ", rows, " image tokens, but their images have ", made, " rows");
  if (axes() == 1) return rows;
  std::vector<int32_t> places(host.positions.as<int32_t>(), host.positions.as<int32_t>() + seq_len_);
  write_axes(vision, grids_of(vision, images), host.tokens, tensor_of(places.data(), {seq_len_}),
             host.positions.view({axes(), seq_len_}));
  return rows;
}

void LossMeter::run_pass(Stream& stream, int64_t documents, int64_t image_rows) {
  copy(stream, inputs_, host_inputs_);
  copy(stream, target_weights_, host_target_weights_);
  const Inputs in = parts_of(inputs_);
  LayerCall c{.stream = stream,
              .scratch = scratch_,
              .saved = saved_,
              .tokens = in.tokens,
              .positions = axes() == 1 ? in.positions : in.positions.view({axes(), seq_len_}),
              .boundaries = in.boundaries.slice(0, documents + 1),
              .targets = in.targets,
              .target_weights = target_weights_,
              .losses = losses_,
              .dtype = dtype_};
  if (!choices_.empty()) {
    fill_bytes(stream, choices_, 0xff);
    c.routing.choices = choices_;
  }
  if (image_rows > 0) c.images.rows = in.image_rows.slice(0, image_rows);
  const int last = weights_.model().layer_count() - 1;
  weights_.head(c, weights_.forward(c, {.first = weights_.model().embedding_layer(),
                                        .end = last,
                                        .next = last,
                                        .rows = {.tokens = seq_len_},
                                        .input = image_rows > 0 ? image_rows_.slice(0, image_rows) : Tensor{},
                                        .buffers = {x_, y_}}));
  copy(stream, host_losses_, losses_);
  if (!choices_.empty()) copy(stream, host_choices_, choices_);
}

}  // namespace flatshard
