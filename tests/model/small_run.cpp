#include "tests/model/small_run.h"

#include <deque>

#include "model/image_rows.h"
#include "runtime/memory.h"
#include "tests/model/gradients.h"

namespace flatshard::test {

namespace {

std::vector<int32_t> whole(const GoldenTensor& tensor) {
  return {tensor.values.begin(), tensor.values.end()};
}

RowCounts rows_of(const ModelConfig& config, const SmallRun::Golden& golden) {
  RowCounts rows{.tokens = golden.at("tokens").shape[0] * golden.at("tokens").shape[1]};
  if (!golden.contains("patches")) return rows;
  rows.patches = golden.at("patches").shape[0];
  rows.frames = golden.at("frames").shape[0] - 1;
  std::vector<int32_t> frames = whole(golden.at("frames")), positions = whole(golden.at("patch_positions"));
  rows.windows = count_windows(
      *config.vision, {frames, tensor_of(positions.data(), {static_cast<int64_t>(positions.size())})});
  return rows;
}

ModelConfig with_context(ModelConfig config, int64_t length) {
  config.context = length;
  return config;
}

}  // namespace

SmallRun::SmallRun(const ModelConfig& config, const Golden& golden, DType dtype, bool recompute,
                   const Fill& fill, float balance)
    : dtype_(dtype),
      recompute_(recompute),
      sequences_(golden.at("tokens").shape[0]),
      length_(golden.at("tokens").shape[1]),
      model_(with_context(config, length_), memory_),
      balance_(balance),
      rows_(rows_of(model_.config(), golden)) {
  allocate();
  StreamSet planning(Device::cpu(), {.planning = true});
  Stream& planned = planning.add("compute");
  step(planned);
  forward(planned);
  for (Arena* arena : {&memory_, &saved_, &scratch_}) arena->commit({.poison = true});
  model_ = Model(model_.config(), memory_);
  allocate();
  model_.fill_tables(stream_);
  fill_inputs(golden);
  fill(model_, parameters_, stream_);
  step(stream_);
}

double SmallRun::loss() const {
  double sum = 0;
  for (const double l : bench::to_doubles(losses_)) sum += l;
  return sum;
}

std::vector<double> SmallRun::logits() {
  forward(stream_);
  return bench::to_doubles(logits_);
}

std::pair<double, std::string> SmallRun::gradient_error(const Golden& golden) const {
  std::pair<double, std::string> worst{0, ""};
  for (size_t u = 0; u < model_.param_lists().size(); ++u)
    for (size_t i = 0; i < model_.param_lists()[u].specs().size(); ++i) {
      const std::string& name = model_.param_lists()[u].specs()[i].name;
      if (gradients_[u][i].empty()) continue;
      const double error =
          bench::max_error(bench::to_doubles(gradients_[u][i]), golden.at("grad." + name).values);
      if (error > worst.first) worst = {error, name};
    }
  return worst;
}

void SmallRun::allocate() {
  const int64_t N = sequences_ * length_;
  tokens_ = memory_.alloc(DType::i32, {N});
  has_axes_ = family(model_.config().family).rope_axes;
  positions_ = memory_.alloc(DType::i32, has_axes_ ? Shape{3, N} : Shape{N});
  targets_ = memory_.alloc(DType::i32, {N});
  boundaries_ = memory_.alloc(DType::i32, {sequences_ + 1});
  weights_ = memory_.alloc(DType::f32, {N});
  losses_ = memory_.alloc(DType::f32, {N});
  logits_ = memory_.alloc(DType::f32, {N, model_.config().vocab});
  dx_ = memory_.alloc(dtype_, model_.largest_output(0, model_.layer_count(), rows_));
  x_ = {Tensor{}};
  for (int i = 0; i + 1 < model_.layer_count(); ++i)
    x_.push_back(memory_.alloc(dtype_, model_.output(i, rows_)));
  if (model_.config().vision) allocate_images();
  if (model_.config().experts > 0) {
    routing_ = {.counts = memory_.alloc(DType::i32, {model_.config().experts})};
    if (balance_ != 0) {
      routing_.factors = memory_.alloc(DType::f32, {2});
      routing_.losses = memory_.alloc(DType::f32, {N, 2});
    }
  }
  parameters_ = allocate_parameters(model_, dtype_, memory_);
  gradients_ = allocate_parameters(model_, DType::f32, memory_);
  for (size_t u = 0; u < gradients_.size(); ++u)
    for (size_t i = 0; i < gradients_[u].size(); ++i)
      if (model_.param_lists()[u].specs()[i].role == ParamRole::fixed) gradients_[u][i] = {};
}

void SmallRun::allocate_images() {
  const VisionConfig& vision = *model_.config().vision;
  images_ = {.patches = memory_.alloc(DType::f32, {rows_.patches, vision.patch_width()}),
             .positions = memory_.alloc(
                 DType::i32, vision.axes() == 1 ? Shape{rows_.patches} : Shape{vision.axes(), rows_.patches}),
             .frames = memory_.alloc(DType::i32, {rows_.frames + 1}),
             .rows = memory_.alloc(DType::i32, {image_rows(vision, rows_)}),
             .moves = moves_in(vision, memory_.alloc(DType::i32, {size_of_moves(vision, rows_)}), rows_)};
}

void SmallRun::fill_images(const Golden& golden) {
  bench::from_doubles(images_.patches, golden.at("patches").values);
  bench::from_doubles(images_.positions, golden.at("patch_positions").values);
  bench::from_doubles(images_.frames, golden.at("frames").values);
  bench::from_doubles(images_.rows, golden.at("rows").values);
  write_moves(*model_.config().vision, frames(), images_.moves);
}

Frames SmallRun::frames() const {
  return {{images_.frames.as<int32_t>(), static_cast<size_t>(images_.frames.size())}, images_.positions};
}

void SmallRun::fill_inputs(const Golden& golden) {
  if (model_.config().vision) fill_images(golden);
  if (!routing_.factors.empty()) {
    bench::from_doubles(routing_.factors, {static_cast<double>(balance_), 0});
    bench::from_doubles(routing_.losses, std::vector<double>(static_cast<size_t>(routing_.losses.size())));
  }
  bench::from_doubles(tokens_, golden.at("tokens").values);
  bench::from_doubles(targets_, golden.at("targets").values);
  std::vector<int32_t> in_sequences(static_cast<size_t>(sequences_ * length_));
  for (int64_t i = 0; i < sequences_ * length_; ++i) {
    in_sequences[static_cast<size_t>(i)] = static_cast<int32_t>(i % length_);
    weights_.as<float>()[i] = 1.0f;
  }
  if (has_axes_)
    write_axes(*model_.config().vision, square_grids(*model_.config().vision, frames()), tokens_,
               tensor_of(in_sequences.data(), {sequences_ * length_}), positions_);
  else
    std::copy(in_sequences.begin(), in_sequences.end(), positions_.as<int32_t>());
  for (int64_t s = 0; s <= sequences_; ++s) boundaries_.as<int32_t>()[s] = static_cast<int32_t>(s * length_);
}

LayerCall SmallRun::call(Stream& stream) {
  return {.stream = stream,
          .scratch = scratch_,
          .saved = saved_,
          .tokens = tokens_,
          .positions = positions_,
          .boundaries = boundaries_,
          .targets = targets_,
          .target_weights = weights_,
          .losses = losses_,
          .images = images_,
          .dtype = dtype_,
          .routing = routing_};
}

void SmallRun::step(Stream& stream) {
  LayerCall c = call(stream);
  std::deque<Gradients> gradients;  // by list
  for (const std::vector<Tensor>& list : gradients_) gradients.emplace_back(list);
  const int last = model_.layer_count() - 1;
  const auto at = [](const auto& list, int i) -> const Tensor& { return list[static_cast<size_t>(i)]; };
  std::vector<int64_t> marks;
  for (int i = 0; i < last; ++i) {
    marks.push_back(saved_.mark());
    model_.layer(i).forward(c, view(parameters_, i), at(x_, i + 1), at(x_, i));
    if (recompute_) saved_.rewind(marks.back());
  }
  for (int i = last; i >= 0; --i) {
    if (recompute_ && i < last) {
      c.repeats = true;
      model_.layer(i).forward(c, view(parameters_, i), at(x_, i + 1), at(x_, i));
    }
    model_.layer(i).backward(c, view(parameters_, i),
                             gradients[static_cast<size_t>(model_.param_list_of(i))].view(),
                             dx_.beginning(at(x_, i < last ? i + 1 : i).shape), at(x_, i));
    if (i < last) saved_.rewind(marks[static_cast<size_t>(i)]);
  }
}

void SmallRun::forward(Stream& stream) {
  LayerCall c = call(stream);
  c.logits = logits_;
  const int last = model_.layer_count() - 1;
  for (int i = 0; i <= last; ++i) {
    const ArenaScope scope(saved_);
    const size_t x = static_cast<size_t>(i);
    model_.layer(i).forward(c, view(parameters_, i), i < last ? x_[x + 1] : Tensor{}, x_[x]);
  }
}

}  // namespace flatshard::test
