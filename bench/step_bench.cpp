#include "bench/step_bench.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "bench/random_tokens.h"
#include "train/step/training_runtime.h"

namespace flatshard::bench {
namespace {

constexpr int kWarmUp = 2, kLeastSteps = 5;
// Long steps are fewer: sampling ends after this many times the time limit, with at least kLeastLongSteps.
constexpr double kPatience = 2;
constexpr int kLeastLongSteps = 2;
constexpr double kTracedSeconds = 0.5;
constexpr int64_t kBatches = 64;  // number of batches before the tokens repeat
constexpr double kCeilingSeconds = 0.1;
constexpr double kQuietShare = 0.02;  // fraction of a step spent waiting for a processor
constexpr int64_t kLoraRank = 8;

struct Shape {
  const char* name;
  ModelConfig model;
};

const std::vector<Shape>& shapes() {
  const auto llama3 = [](int64_t layers) -> ModelConfig {
    return {.family = "llama",
            .layers = layers,
            .hidden = 4096,
            .heads = 32,
            .kv_heads = 8,
            .ffn = 14336,
            .vocab = 128256,
            .tied = false,
            .rope_theta = 5e5};
  };
  const auto qwen = [](int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) -> ModelConfig {
    return {.family = "qwen2",
            .layers = layers,
            .hidden = hidden,
            .heads = heads,
            .kv_heads = 2,
            .ffn = ffn,
            .vocab = 151936,
            .tied = true,
            .rope_theta = 1e6};
  };
  const auto mixture = [](int64_t experts) -> ModelConfig {
    return {.family = "qwen3_moe",
            .layers = 4,
            .hidden = 512,
            .heads = 8,
            .kv_heads = 4,
            .vocab = 8192,
            .tied = true,
            .experts = experts,
            .experts_per_token = 4,
            .expert_ffn = 256,
            .norm_topk = true};
  };
  static const std::vector<Shape> all{
      {"gpt2-124m",
       {.family = "gpt2", .layers = 12, .hidden = 768, .heads = 12, .vocab = 50257, .max_positions = 1024}},
      {"qwen2.5-0.5b", qwen(24, 896, 14, 4864)},
      {"qwen2.5-1.5b", qwen(28, 1536, 12, 8960)},
      {"llama3-8b", llama3(32)},
      {"llama3-8b-16-layers", llama3(16)},  // fits devices that cannot hold the full model
      {"llama3-8b-4-layers", llama3(4)},    // leaves memory for two systems at once
      {"experts-32", mixture(32)},
      {"experts-64", mixture(64)},
      {"tiny", {.family = "llama", .layers = 2, .hidden = 64, .heads = 2, .ffn = 128, .vocab = 256}},
  };
  return all;
}

const ModelConfig& shape_named(const std::string& name) {
  for (const Shape& shape : shapes())
    if (name == shape.name) return shape.model;
  std::string names;
  for (const std::string& each : step_models()) names += " " + each;
  fail(str("--model is \"", name, "\", must be one of", names));
}

Config config_of(const StepOptions& o) {
  Config c;
  c.run.device = o.device.is_cuda() ? DeviceChoice::cuda : DeviceChoice::cpu;
  c.model = shape_named(o.model);
  c.data.seq_len = o.seq_len;
  c.train.steps = 1;
  c.train.batch_size_per_device = o.batch;
  c.train.total_batch_size = o.batch * o.micro_steps;
  c.optimizer.lr = 1e-4;
  c.optimizer.weight_decay = 0.1;
  c.precision.compute = *named<Precision>(o.compute);
  if (o.trained == Trained::adapters) c.lora = {.rank = kLoraRank, .dropout = o.lora_dropout};
  if (o.trained == Trained::first_norm)
    c.trainable = {c.model.family == "gpt2" ? "*.h.0.ln_1.*" : "*.layers.0.input_layernorm.*"};
  return overridden(c, o.keys);
}

double bytes_of_step(Engine& engine, int64_t micro_steps) {
  double update = 0, of_micro_step = 0;
  for (const ShardedUnit& unit : engine.units()) {
    update += min_bytes(unit.shard());
    of_micro_step += 2.0 * static_cast<double>(unit.shard().g.bytes());
    for (const Tensor& value : unit.values()) of_micro_step += 2.0 * static_cast<double>(value.bytes());
  }
  return update + static_cast<double>(micro_steps) * of_micro_step;
}

// The time of the update in a step, from the spans around it; 0 without any.
double update_seconds(const Trace& trace) {
  double seconds = 0;
  int updates = 0;
  trace.each_span([&](const std::string&, const std::string& name, auto begin, auto end) {
    if (name != "update") return;
    seconds += std::chrono::duration<double>(end - begin).count();
    ++updates;
  });
  return updates > 0 ? seconds / updates : 0;
}

}  // namespace

std::vector<std::string> step_models() {
  std::vector<std::string> names;
  for (const Shape& shape : shapes()) names.emplace_back(shape.name);
  return names;
}

struct StepBench::Training {
  Training(const StepOptions& o, World& world, Ceilings& all_ceilings)
      : options(o),
        setup(set_up(config_of(o), 1)),
        tokens(o.batch * o.seq_len * kBatches + 1, setup.model.vocab),
        data(tokens.file(), {.seq_len = o.seq_len,
                             .lane_sequences = setup.batching.lane_sequences,
                             .total_sequences = setup.batching.total_sequences}),
        runtime(setup, world, {.trace = &trace}),
        ceilings(all_ceilings),
        matrix(ceilings.matrix(setup.compute)) {
    check(matrix != nullptr, "--step needs a matrix ceiling: ", ceilings.no_matrix);
    trace.set_recording(false);
    runtime.engine().initialize();
  }

  // Traces steps for the ops and the update of `result`, after one whose spans are dropped: it creates the
  // timing events.
  void trace_steps(StepResult& result) {
    trace.set_recording(true);
    step();
    trace.set_recording(false);
    trace.collect();
    trace.set_recording(true);
    for (double spent = 0; spent < kTracedSeconds; ++traced_steps) spent += seconds_of([&] { step(); });
    trace.collect();
    trace.set_recording(false);
    result.update_seconds = update_seconds(trace);
    result.ops = step_ops(trace, traced_steps);
  }

  double step() {  // returns the loss
    const auto r = runtime.engine().step(data, {.data_step = number,
                                                .update = number + 1,
                                                .lr = 1e-4,
                                                .loss_scale = 1,
                                                .targets = data.target_count(number)});
    ++number;
    return std::accumulate(r.lane_losses.begin(), r.lane_losses.end(), 0.0);
  }

  StepOptions options;
  Trace trace;
  RunSetup setup;
  RandomTokens tokens;
  Data data;
  TrainingRuntime runtime;
  Ceilings& ceilings;
  Ceiling* matrix;
  int64_t number = 0;
  int traced_steps = 0;
};

StepBench::StepBench(const StepOptions& options, World& world, Ceilings& ceilings)
    : training_(std::make_unique<Training>(options, world, ceilings)) {}
StepBench::~StepBench() = default;

StepSample StepBench::sample() {
  Training& t = *training_;
  while (t.number < kWarmUp) t.step();
  StepSample sample{};
  const double waited = waited_seconds(), used = processor_seconds();
  sample.seconds = seconds_of([&] { sample.loss = t.step(); });
  sample.processor_seconds = processor_seconds() - used;
  sample.quiet = waited_seconds() - waited < kQuietShare * sample.seconds;
  return sample;
}

StepResult StepBench::measure(double limit) {
  Training& t = *training_;
  const RunPlan& plan = t.runtime.plan();
  const int64_t tokens = t.setup.batching.total_sequences * t.options.seq_len;
  StepResult result{.model = t.options.model,
                    .compute = t.options.compute,
                    .seq_len = t.options.seq_len,
                    .tokens = tokens,
                    .micro_steps = t.setup.batching.micro_steps,
                    .keys = t.options.keys,
                    .operations = static_cast<double>(tokens) * plan.flops.causal,
                    .operations_full = static_cast<double>(tokens) * plan.flops.full,
                    .bytes = bytes_of_step(t.runtime.engine(), t.setup.batching.micro_steps),
                    .memory_bytes = plan.memory_bytes};
  std::vector<double> seconds, quiet_seconds, matrix_rates, copy_rates;
  double spent = 0;
  const auto enough = [&] {
    const int steps = static_cast<int>(seconds.size());
    return spent >= limit &&
           (steps >= kLeastSteps || (steps >= kLeastLongSteps && spent >= kPatience * limit));
  };
  while (!enough()) {
    matrix_rates.push_back(t.matrix->sample(kCeilingSeconds));
    copy_rates.push_back(t.ceilings.copy.sample(kCeilingSeconds));
    const StepSample step = sample();
    seconds.push_back(step.seconds);
    if (step.quiet) quiet_seconds.push_back(step.seconds);
    result.loss = step.loss;
    spent += step.seconds;
  }
  result.disturbed = quiet_seconds.size() < std::min<size_t>(kLeastSteps, seconds.size());
  result.seconds = spread(result.disturbed ? seconds : quiet_seconds);
  result.steps = static_cast<int>((result.disturbed ? seconds : quiet_seconds).size());
  result.matrix_rate = quantile(matrix_rates, 0.5);
  result.copy_rate = quantile(copy_rates, 0.5);
  t.trace_steps(result);
  return result;
}

std::string step_plan(const StepOptions& o) {
  const RunSetup setup = set_up(config_of(o), 1, {}, Purpose::plan);
  const RunPlan plan = plan_run(setup, 0);
  return str(o.model, ", ", o.compute, ", ", o.batch, " x ", o.seq_len, " tokens x ", o.micro_steps, ": ",
             plan.parameters, " parameters, ", plan.trainable, " trained, ", plan.memory_bytes >> 20,
             " MiB planned\n");
}

std::string step_header(const std::string& model) {
  std::ostringstream out;
  out << std::left << std::setw(30) << (model == "gpt2-124m" ? "GPT-2 124M" : model) + ", whole steps"
      << "tokens/s   step ms  p10..p90 ms    floor ms  = products + bytes   "
         "step/floor  GFLOP/s peak  GB/s copy\n";
  return std::move(out).str();
}

std::string step_line(const StepResult& r) {
  std::ostringstream out;
  const auto ms = [](double s) { return s * 1e3; };
  out << std::fixed << std::setprecision(0) << std::left << std::setw(6) << r.compute << std::setw(5)
      << (r.disturbed ? "~" : "") << std::right << std::setw(4) << r.tokens << " tokens, " << std::setw(3)
      << r.steps << " steps  " << std::setw(6) << r.tokens_per_second() << std::setw(10)
      << ms(r.seconds.median) << std::setw(7) << ms(r.seconds.p10) << ".." << std::left << std::setw(6)
      << ms(r.seconds.p90) << std::right << std::setw(8) << ms(r.floor_seconds()) << std::setw(10)
      << ms(r.operations / r.matrix_rate) << " + " << std::setw(4) << ms(r.bytes / r.copy_rate)
      << std::setw(14) << std::setprecision(2) << r.seconds.median / r.floor_seconds() << std::setprecision(0)
      << std::setw(14) << r.matrix_rate * 1e-9 << std::setw(11) << r.copy_rate * 1e-9 << "   loss "
      << std::setprecision(3) << r.loss << "   mfu " << std::setprecision(1) << 100 * r.mfu_full()
      << "% causal " << 100 * r.mfu_causal() << "%";
  if (r.update_seconds > 0)
    out << "   update " << ms(r.update_seconds) << " ms, without it " << std::setprecision(0)
        << r.tokens_per_second_without_update() << " tokens/s";
  out << '\n';
  return std::move(out).str();
}

}  // namespace flatshard::bench
