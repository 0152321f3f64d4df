#include "tools/inference/loss_meter.h"

#include <algorithm>

#include "runtime/memory.h"
#include "text/data/data.h"

namespace flatshard {
namespace {

ModelConfig config_for(const ModelSource& source, int64_t seq_len) {
  ModelConfig config = read_model_config(source);
  check(seq_len >= 1 && seq_len <= config.max_positions, "--seq-len is ", seq_len, ", must be from 1 to ",
        config.max_positions, ", the positions of ", source.folder, "/config.json");
  config.context = seq_len;
  return config;
}

}  // namespace

void cut_windows(std::span<const int32_t> tokens, std::span<const uint8_t> trained, int64_t seq_len,
                 const TakeWindow& take) {
  const size_t step = static_cast<size_t>(seq_len);
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += step) {
    const size_t count = std::min(step + 1, tokens.size() - begin);
    const auto part = tokens.subspan(begin, count);
    LossWindow window{{part.begin(), part.end()}, std::vector<uint8_t>(count, 1)};
    if (!trained.empty())
      std::copy_n(trained.begin() + static_cast<std::ptrdiff_t>(begin), count, window.trained.begin());
    take(std::move(window));
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
      model_(config_for(source, seq_len), dtype, stream_),
      memory_("evaluation", device),
      host_("host", Device::cpu(), Placement::pinned),
      saved_("activations", device),
      scratch_("scratch", device) {
  read_model_weights(source, model_.model(), model_.parameters(), stream_);
  allocate();
  StreamGroup planning(device, {.planning = true});
  run_pass(planning.add("compute"), seq_len_);
  for (Arena* arena : {&memory_, &host_, &saved_, &scratch_}) arena->commit();
  allocate();
}

void LossMeter::allocate() {
  const int64_t hidden = model_.model().config().hidden;
  x_ = memory_.alloc(model_.dtype(), {seq_len_, hidden});
  y_ = memory_.alloc(model_.dtype(), {seq_len_, hidden});
  inputs_ = memory_.alloc(DType::i32, {4 * seq_len_ + 1});
  weights_ = memory_.alloc(DType::f32, {seq_len_});
  losses_ = memory_.alloc(DType::f32, {seq_len_});
  host_inputs_ = host_.alloc(DType::i32, inputs_.shape);
  host_weights_ = host_.alloc(DType::f32, weights_.shape);
  host_losses_ = host_.alloc(DType::f32, losses_.shape);
}

size_t LossMeter::windows_of_pass(std::span<const LossWindow> windows) const {
  int64_t rows = 0;
  size_t count = 0;
  while (count < windows.size() && rows + std::ssize(windows[count].tokens) - 1 <= seq_len_)
    rows += std::ssize(windows[count++].tokens) - 1;
  check(count > 0, "a window of ", windows.front().tokens.size(), " tokens exceeds the sequence length of ",
        seq_len_);
  return count;
}

std::vector<std::vector<float>> LossMeter::measure(std::span<const LossWindow> windows) {
  check(windows_of_pass(windows) == windows.size(), "the windows exceed a pass of ", seq_len_, " tokens");
  int32_t* in = host_inputs_.as<int32_t>();
  int32_t *tokens = in, *positions = in + seq_len_, *targets = in + 2 * seq_len_, *starts = in + 3 * seq_len_;
  int64_t row = 0, documents = 0;
  for (const LossWindow& window : windows) {
    starts[documents++] = static_cast<int32_t>(row);
    for (size_t i = 0; i + 1 < window.tokens.size(); ++i, ++row) {
      tokens[row] = window.tokens[i];
      positions[row] = static_cast<int32_t>(i);
      targets[row] = window.tokens[i + 1];
    }
  }
  if (row < seq_len_) starts[documents++] = static_cast<int32_t>(row);
  for (int64_t i = 0; row < seq_len_; ++row, ++i) {  // a document of padding
    tokens[row] = 0;
    positions[row] = static_cast<int32_t>(i);
    targets[row] = kIgnoredTarget;
  }
  starts[documents] = static_cast<int32_t>(seq_len_);
  std::fill_n(host_weights_.as<float>(), seq_len_, 1.0f);
  run_pass(stream_, documents);
  stream_.sync();

  std::vector<std::vector<float>> losses;
  const float* next = host_losses_.as<float>();
  for (const LossWindow& window : windows) {
    const float* const begin = next;
    next += window.tokens.size() - 1;
    losses.emplace_back(begin, next);
  }
  return losses;
}

void LossMeter::run_pass(Stream& stream, int64_t documents) {
  copy(stream, inputs_, host_inputs_);
  copy(stream, weights_, host_weights_);
  Context c{.stream = stream,
            .scratch = scratch_,
            .saved = saved_,
            .tokens = inputs_.slice(0, seq_len_),
            .positions = inputs_.slice(seq_len_, 2 * seq_len_),
            .boundaries = inputs_.slice(3 * seq_len_, 3 * seq_len_ + documents + 1),
            .targets = inputs_.slice(2 * seq_len_, 3 * seq_len_),
            .target_weights = weights_,
            .losses = losses_,
            .dtype = model_.dtype()};
  Model& model = model_.model();
  Tensor x = x_, y = y_;
  for (int i = model.embedding_layer(); i < model.layer_count(); ++i) {
    const ArenaScope scope(saved_);
    model.layer(i).forward(c, model_.view(i), y, x);
    std::swap(x, y);
  }
  copy(stream, host_losses_, losses_);
}

}  // namespace flatshard
