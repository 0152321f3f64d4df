#include "model/model.h"

#include <map>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int64_t kSequences = 2, kLength = 12, kTokens = kSequences * kLength;

ModelConfig small_model(const std::string& family) {
  ModelConfig c{
      .family = family, .layers = 2, .hidden = 16, .heads = 4, .ffn = 24, .vocab = 40, .max_positions = 32};
  if (family != "gpt2") c.kv_heads = 2;
  if (family == "gpt2") c.ffn = 64;
  if (family == "mistral") c.window = 5;
  if (family == "qwen3") c.head_dim = 6;
  return resolved(c);
}

using Golden = std::map<std::string, test::GoldenTensor>;

// A whole model on one device, all parameters resident: what the trainer does, in its simplest form.
class SmallRun {
 public:
  SmallRun(const ModelConfig& config, const Golden& golden, DType dtype, bool recompute)
      : dtype_(dtype), recompute_(recompute), memory_("all", Device::cpu()), model_(config, memory_) {
    allocate();
    StreamGroup planning(Device::cpu(), {.planning = true});
    step(planning.add("compute"));
    for (Arena* arena : {&memory_, &saved_, &scratch_}) arena->commit({.poison = true});
    model_ = Model(config, memory_);
    allocate();
    model_.fill_tables(stream_);
    fill(golden);
    step(stream_);
  }

  double loss() const {
    double sum = 0;
    for (const double l : bench::to_doubles(losses_)) sum += l;
    return sum;
  }
  // The largest relative error of a gradient, and whose it is.
  std::pair<double, std::string> gradient_error(const Golden& golden) const {
    std::pair<double, std::string> worst{0, ""};
    for (size_t u = 0; u < model_.units().size(); ++u)
      for (size_t i = 0; i < model_.units()[u].specs().size(); ++i) {
        const std::string& name = model_.units()[u].specs()[i].name;
        const double error =
            bench::max_error(bench::to_doubles(gradients_[u][i]), golden.at("grad." + name).values);
        if (error > worst.first) worst = {error, name};
      }
    return worst;
  }
  const std::vector<std::vector<Tensor>>& gradients() const { return gradients_; }

 private:
  void allocate() {
    const int64_t C = model_.config().hidden;
    tokens_ = memory_.alloc(DType::i32, {kTokens});
    positions_ = memory_.alloc(DType::i32, {kTokens});
    targets_ = memory_.alloc(DType::i32, {kTokens});
    boundaries_ = memory_.alloc(DType::i32, {kSequences + 1});
    weights_ = memory_.alloc(DType::f32, {kTokens});
    losses_ = memory_.alloc(DType::f32, {kTokens});
    dx_ = memory_.alloc(dtype_, {kTokens, C});
    x_.clear();
    for (int i = 0; i < model_.stage_count(); ++i) x_.push_back(memory_.alloc(dtype_, {kTokens, C}));
    parameters_.clear();
    gradients_.clear();
    for (const ParamList& unit : model_.units()) {
      parameters_.emplace_back();
      gradients_.emplace_back();
      for (const ParamSpec& spec : unit.specs()) {
        parameters_.back().push_back(memory_.alloc(dtype_, spec.shape));
        gradients_.back().push_back(memory_.alloc(DType::f32, spec.shape));
      }
    }
  }

  void fill(const Golden& golden) {
    bench::from_doubles(tokens_, golden.at("tokens").values);
    bench::from_doubles(targets_, golden.at("targets").values);
    for (int64_t i = 0; i < kTokens; ++i) {
      positions_.as<int32_t>()[i] = static_cast<int32_t>(i % kLength);
      weights_.as<float>()[i] = 1.0f;
    }
    for (int64_t s = 0; s <= kSequences; ++s)
      boundaries_.as<int32_t>()[s] = static_cast<int32_t>(s * kLength);
    for (size_t u = 0; u < parameters_.size(); ++u)
      for (size_t i = 0; i < parameters_[u].size(); ++i) {
        const std::string& name = model_.units()[u].specs()[i].name;
        bench::from_doubles(parameters_[u][i], golden.at(name).values);
        zero(stream_, gradients_[u][i]);
      }
  }

  void step(Stream& stream) {
    Context c{.stream = stream,
              .scratch = scratch_,
              .saved = saved_,
              .tokens = tokens_,
              .positions = positions_,
              .boundaries = boundaries_,
              .targets = targets_,
              .weights = weights_,
              .losses = losses_,
              .dtype = dtype_};
    const int last = model_.stage_count() - 1;
    const auto at = [](const auto& list, int i) -> const Tensor& { return list[static_cast<size_t>(i)]; };
    std::vector<int64_t> marks;
    for (int i = 0; i < last; ++i) {
      marks.push_back(saved_.mark());
      model_.stage(i).forward(c, view(parameters_, i), at(x_, i + 1), at(x_, i));
      if (recompute_) saved_.rewind(marks.back());
    }
    for (int i = last; i >= 0; --i) {
      if (recompute_ && i < last) model_.stage(i).forward(c, view(parameters_, i), at(x_, i + 1), at(x_, i));
      model_.stage(i).backward(c, view(parameters_, i), view(gradients_, i), dx_, at(x_, i));
      if (i < last) saved_.rewind(marks[static_cast<size_t>(i)]);
    }
  }

  ParamView view(const std::vector<std::vector<Tensor>>& tensors, int stage) const {
    return ParamView(tensors[static_cast<size_t>(model_.unit_of(stage))]);
  }

  DType dtype_;
  bool recompute_;
  StreamGroup streams_{Device::cpu()};
  Stream& stream_ = streams_.add("compute");
  Arena memory_, saved_{"saved", Device::cpu()}, scratch_{"scratch", Device::cpu()};
  Model model_;
  Tensor tokens_, positions_, targets_, boundaries_, weights_, losses_, dx_;
  std::vector<Tensor> x_;
  std::vector<std::vector<Tensor>> parameters_, gradients_;
};

}  // namespace

TEST_CASE("a two-layer model of each family has the loss and gradients of the independent framework") {
  for (const Family& f : families()) {
    CAPTURE(f.name);
    const Golden golden = test::load_golden("model_" + f.name);
    const SmallRun run(small_model(f.name), golden, DType::f32, false);
    const double expected = golden.at("loss").values[0];
    CHECK(run.loss() == doctest::Approx(expected).epsilon(1e-5));
    const auto [error, name] = run.gradient_error(golden);
    CAPTURE(name);
    CHECK(error < 1e-4);
  }
}

TEST_CASE("in bf16 a model's loss and gradients stay near those of f32") {
  for (const Family& f : families()) {
    CAPTURE(f.name);
    const Golden golden = test::load_golden("model_" + f.name);
    const SmallRun run(small_model(f.name), golden, DType::bf16, false);
    CHECK(run.loss() == doctest::Approx(golden.at("loss").values[0]).epsilon(0.01));
    const auto [error, name] = run.gradient_error(golden);
    CAPTURE(name);
    CHECK(error <
          0.25);  // a few bf16 roundings of 2^-8 in each of some ten ops in a row, against small elements
  }
}

TEST_CASE("recomputing activations gives the same bits") {
  for (const Family& f : families()) {
    CAPTURE(f.name);
    const Golden golden = test::load_golden("model_" + f.name);
    const SmallRun kept(small_model(f.name), golden, DType::bf16, false);
    const SmallRun again(small_model(f.name), golden, DType::bf16, true);
    CHECK(kept.loss() == again.loss());
    for (size_t u = 0; u < kept.gradients().size(); ++u)
      for (size_t i = 0; i < kept.gradients()[u].size(); ++i)
        CHECK(bench::to_doubles(kept.gradients()[u][i]) == bench::to_doubles(again.gradients()[u][i]));
  }
}

TEST_CASE("a model counts its parameters as the published models do") {
  Arena tables("tables", Device::cpu());
  const auto count = [&](ModelConfig c) { return Model(resolved(c), tables).parameter_count(); };
  CHECK(count({.family = "llama", .layers = 32, .hidden = 4096, .heads = 32, .ffn = 11008, .vocab = 32000}) ==
        6738415616);
  CHECK(count({.family = "mistral",
               .layers = 32,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 8,
               .ffn = 14336,
               .vocab = 32000}) == 7241732096);
  CHECK(count({.family = "qwen2",
               .layers = 24,
               .hidden = 896,
               .heads = 14,
               .kv_heads = 2,
               .ffn = 4864,
               .vocab = 151936,
               .tied = true}) == 494032768);
  CHECK(count({.family = "qwen3",
               .layers = 28,
               .hidden = 1024,
               .heads = 16,
               .kv_heads = 8,
               .head_dim = 128,
               .ffn = 3072,
               .vocab = 151936,
               .tied = true}) == 596049920);
  CHECK(count({.family = "gpt2",
               .layers = 12,
               .hidden = 768,
               .heads = 12,
               .vocab = 50257,
               .max_positions = 1024}) == 124439808);
}
