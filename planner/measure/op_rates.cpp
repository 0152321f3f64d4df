#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "kernels/four_bit.h"
#include "kernels/init.h"
#include "kernels/sum_squares.h"
#include "model/model.h"
#include "planner/measure/measured_machines.h"
#include "runtime/median.h"
#include "runtime/memory.h"
#include "runtime/trace.h"

namespace flatshard {
namespace {

// Ops are timed with few rows, too: chunks of the head and short micro-batches have rates of their own.
constexpr int64_t kTokens[] = {512, 256, 128, 64};
constexpr int64_t kMostVocab = 2048;
constexpr int kRounds = 5;  // timed rounds, after one that does not count
// The timed model has the largest of these widths with which the products of a round take at most kSeconds.
constexpr int64_t kWidths[] = {512, 256, 128};
constexpr double kSeconds = 0.2;

int64_t width_for(double products) {
  for (const int64_t width : kWidths) {
    const double C = static_cast<double>(width), weights = 12 * C * C + kMostVocab * C;
    if (6 * kTokens[0] * weights < kSeconds * products) return width;
  }
  return kWidths[std::size(kWidths) - 1];
}

// Weights or gradients by unit, as layers take them.
class GradientsOfUnit {
 public:
  explicit GradientsOfUnit(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) all_.push_back({tensor});
    for (Gradient& gradient : all_) pointers_.push_back(&gradient);
  }
  GradientsOfUnit(const GradientsOfUnit&) = delete;
  GradientsOfUnit& operator=(const GradientsOfUnit&) = delete;
  GradView view() const { return GradView(pointers_); }

 private:
  std::vector<Gradient> all_;
  std::vector<Gradient*> pointers_;
};

class SmallStep {
 public:
  // `four_bit`: how the run stores its weights, if they are quantized.
  SmallStep(const ModelConfig& config, DType compute, int64_t token_count,
            const std::optional<FourBitFormat>& four_bit)
      : compute_(compute), token_count_(token_count), four_bit_(four_bit), model_(config, memory_) {
    allocate();
    StreamSet planning(Device::cpu(), {.planning = true, .recording = &recording_});
    run(planning.add("compute"));
    for (Arena* const arena : {&memory_, &saved_, &scratch_}) arena->commit();
    model_ = Model(config, memory_);
    allocate();
    fill();
    trace_.set_recording(false);
    run(stream_);
    trace_.set_recording(true);
  }

  void time_round() { run(stream_); }

  // Every op with its median time, which does not change if another process takes the processor for a while.
  // The spans of an op in all rounds have the order of the recording.
  std::vector<TimedOp> timed() const {
    std::vector<int> ops;
    for (const Recording::Item& item : recording_.items())
      if (item.kind == Recording::Kind::op) ops.push_back(item.index);
    std::vector<std::vector<double>> seconds(recording_.ops().size());
    size_t next = 0;
    trace_.each_span([&](const std::string&, const std::string& name, auto begin, auto end) {
      const auto op = static_cast<size_t>(ops[next++ % ops.size()]);
      check(recording_.ops()[op].name == name, "the recording of a step of the small model has ",
            recording_.ops()[op].name, " where its trace has ", name);
      seconds[op].push_back(std::chrono::duration<double>(end - begin).count());
    });
    std::vector<TimedOp> timed;
    for (size_t i = 0; i < seconds.size(); ++i)
      if (!seconds[i].empty()) timed.push_back({recording_.ops()[i], median(seconds[i])});
    return timed;
  }

 private:
  int64_t length() const { return model_.config().context; }

  void allocate() {
    const int64_t N = token_count_, documents = N / length();
    for (Tensor* const tensor : {&tokens_, &positions_, &targets_}) *tensor = memory_.alloc(DType::i32, {N});
    boundaries_ = memory_.alloc(DType::i32, {documents + 1});
    target_weights_ = memory_.alloc(DType::f32, {N});
    losses_ = memory_.alloc(DType::f32, {N});
    const RowCounts rows{.tokens = N};
    dx_ = memory_.alloc(compute_, model_.largest_output(0, model_.layer_count(), rows));
    x_.assign(1, Tensor{});
    for (int i = 0; i + 1 < model_.layer_count(); ++i)
      x_.push_back(memory_.alloc(compute_, model_.output(i, rows)));
    parameters_ = allocate_parameters(model_, compute_, memory_);
    gradients_ = allocate_parameters(model_, DType::f32, memory_);
    const int64_t updated = model_.parameter_count();
    for (Tensor* const tensor : {&masters_, &first_moments_, &second_moments_, &gradient_})
      *tensor = memory_.alloc(DType::f32, {updated});
    copy_ = memory_.alloc(compute_, {updated});
    clip_ = memory_.alloc(DType::f32, {1});
    squares_ = memory_.alloc(DType::f32, {squares_intervals(0, updated)});
    if (!four_bit_) return;
    const int64_t blocks = block_count(updated, four_bit_->block);
    quantized_ = {.codes = memory_.alloc(DType::u8, {code_bytes(updated)}),
                  .absmax = memory_.alloc(four_bit_->nested ? DType::u8 : DType::f32, {blocks}),
                  .table = memory_.alloc(DType::f32, {std::tuple_size_v<FourBitTable>}),
                  .block = four_bit_->block,
                  .shape = {1, updated}};
    if (!four_bit_->nested) return;
    quantized_.nested_absmax = memory_.alloc(DType::f32, {block_count(blocks, kNestedBlock)});
    quantized_.nested_table = memory_.alloc(DType::f32, {256});
    quantized_.nested_offset = memory_.alloc(DType::f32, {1});
  }

  void fill() {
    StreamSet streams(Device::cpu());
    Stream& stream = streams.add("compute");
    for (const Tensor& tensor :
         {masters_, first_moments_, second_moments_, gradient_, clip_, quantized_.codes, quantized_.absmax,
          quantized_.table, quantized_.nested_absmax, quantized_.nested_table, quantized_.nested_offset})
      zero(stream, tensor);
    model_.fill_tables(stream);
    for (size_t u = 0; u < parameters_.size(); ++u)
      for (size_t i = 0; i < parameters_[u].size(); ++i) {
        const ParamSpec& spec = model_.param_lists()[u].specs()[i];
        init_param(stream, {.y = parameters_[u][i], .init = spec.init, .random = RandomStream(1, spec.name)});
      }
    stream.sync();
    for (int64_t i = 0; i < token_count_; ++i) {
      tokens_.as<int32_t>()[i] = targets_.as<int32_t>()[i] =
          static_cast<int32_t>(i * 31 % model_.config().vocab);
      positions_.as<int32_t>()[i] = static_cast<int32_t>(i % length());
      target_weights_.as<float>()[i] = 1.0f / static_cast<float>(token_count_);
    }
    for (int64_t d = 0; d <= token_count_ / length(); ++d)
      boundaries_.as<int32_t>()[d] = static_cast<int32_t>(d * length());
  }

  void run(Stream& stream) {
    LayerCall c{.stream = stream,
                .scratch = scratch_,
                .saved = saved_,
                .tokens = tokens_,
                .positions = positions_,
                .boundaries = boundaries_,
                .targets = targets_,
                .target_weights = target_weights_,
                .losses = losses_,
                .dtype = compute_,
                .head_chunk = token_count_};
    const ArenaScope saved(saved_);
    std::deque<GradientsOfUnit> gradients;
    for (const std::vector<Tensor>& unit : gradients_) gradients.emplace_back(unit);
    const auto at = [](const auto& list, int i) -> const auto& { return list[static_cast<size_t>(i)]; };
    const auto weights = [&](int i) { return ParamView(at(parameters_, model_.param_list_of(i))); };
    const int last = model_.layer_count() - 1;
    for (int i = 0; i < last; ++i) model_.layer(i).forward(c, weights(i), at(x_, i + 1), at(x_, i));
    for (int i = last; i >= 0; --i)
      model_.layer(i).backward(c, weights(i), at(gradients, model_.param_list_of(i)).view(),
                               dx_.beginning(at(x_, i < last ? i + 1 : i).shape), at(x_, i));
    update(stream);
    stream.sync();
  }

  // The work of a step on all parameters: sums of lanes, the norm, the update, the decoding of 4-bit weights.
  void update(Stream& stream) {
    add(stream, {.y = gradient_, .a = gradient_, .b = first_moments_});
    sum_squares(stream, {.partials = squares_, .x = gradient_});
    adamw(stream, {.shard = {.p = masters_,
                             .copy = copy_,
                             .g = gradient_,
                             .state = {first_moments_, second_moments_},
                             .decay_end = masters_.size()},
                   .grad_scale = clip_,
                   .skip = {},
                   .lr = 1e-3,
                   .beta1 = 0.9,
                   .beta2 = 0.999,
                   .step = 1});
    if (four_bit_) dequantize_four_bit(stream, {.y = copy_, .w = quantized_});
  }

  DType compute_;
  int64_t token_count_;
  std::optional<FourBitFormat> four_bit_;
  Arena memory_{"small model", Device::cpu()}, saved_{"small activations", Device::cpu()},
      scratch_{"small scratch", Device::cpu()};
  Recording recording_;
  Trace trace_;
  StreamSet streams_{Device::cpu(), {.trace = &trace_}};
  Stream& stream_ = streams_.add("compute");
  Model model_;
  Tensor tokens_, positions_, boundaries_, targets_, target_weights_, losses_, dx_;
  Tensor masters_, first_moments_, second_moments_, gradient_, copy_, clip_, squares_;
  FourBitMatrix quantized_{};
  std::vector<Tensor> x_;
  ParamTensors parameters_, gradients_;
};

}  // namespace

ModelConfig smaller_model(const ModelConfig& model, int64_t width) {
  ModelConfig small = model;
  small.layers = std::min<int64_t>(model.layers, 2);
  small.full_attention_blocks.clear();
  small.no_rope_blocks.clear();
  small.quantized.clear();
  small.vocab = std::min(model.vocab, kMostVocab);
  const int64_t queries = model.heads / model.kv_heads,
                heads = std::clamp<int64_t>(width / model.head_dim, 1, model.heads);
  small.kv_heads = std::max<int64_t>(1, heads / queries);
  small.heads = small.kv_heads * std::min(queries, heads);
  const bool is_square = model.hidden == model.heads * model.head_dim;
  small.hidden = is_square ? small.heads * small.head_dim : std::min(model.hidden, width);
  constexpr int64_t kMultiple = 64;
  const int64_t ffn = model.ffn * small.hidden / model.hidden / kMultiple * kMultiple;
  small.ffn = std::min(model.ffn, std::max(ffn, kMultiple));
  if (model.experts == 0) return small;
  constexpr int64_t kMostExperts = 16;
  const int64_t expert_ffn = model.expert_ffn * small.hidden / model.hidden / kMultiple * kMultiple;
  small.expert_ffn = std::min(model.expert_ffn, std::max(expert_ffn, kMultiple));
  small.shared_ffn = model.shared_ffn * small.hidden / model.hidden / kMultiple * kMultiple;
  small.shared_ffn = std::min(model.shared_ffn, std::max(small.shared_ffn, kMultiple));
  small.experts = std::min(model.experts, kMostExperts);
  small.experts_per_token = std::min(model.experts_per_token, small.experts);
  small.expert_groups = small.top_groups = 1;
  std::erase_if(small.dense_blocks, [&](int64_t block) { return block > 0; });
  return small;
}

std::vector<TimedOp> time_ops(const RunSetup& setup, double products) {
  if (setup.model.vision) return {};
  ModelConfig model = smaller_model(setup.model, width_for(products));
  std::optional<FourBitFormat> four_bit;
  if (!setup.model.quantized.empty()) four_bit = setup.model.quantized.begin()->second;
  std::deque<SmallStep> steps;
  for (const int64_t tokens : kTokens) {
    // The context is a power of two, so that whole sequences fill the tokens.
    model.context = tokens;
    while (model.context > setup.seq_len()) model.context /= 2;
    steps.emplace_back(model, setup.compute, tokens, four_bit);
  }
  // The steps take turns, so that a change of the machine's speed affects all of them alike.
  for (int round = 0; round < kRounds; ++round)
    for (SmallStep& step : steps) step.time_round();
  std::vector<TimedOp> timed;
  for (const SmallStep& step : steps)
    for (const TimedOp& op : step.timed()) timed.push_back(op);
  return timed;
}

}  // namespace flatshard
