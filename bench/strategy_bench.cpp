#include "bench/strategy_bench.h"

#include <iomanip>
#include <memory>
#include <sstream>

#include "bench/random_tokens.h"
#include "train/step/training_runtime.h"

namespace flatshard::bench {
namespace {

constexpr int kWarmUp = 2, kLeastSteps = 7;
constexpr int64_t kVocab = 1024, kSequences = 4, kLength = 256;

Config small_llama(const StrategyOptions& options, int ranks) {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = "llama", .layers = 4, .hidden = 512, .heads = 8, .ffn = 1408, .vocab = kVocab};
  c.data.seq_len = kLength;
  c.train.steps = 1;
  c.train.batch_size_per_device = kSequences;
  c.train.total_batch_size = kSequences * ranks;
  c.optimizer.lr = 1e-3;
  c.precision.compute = *named<Precision>(options.compute);
  return c;
}

// A training run with one strategy, and its measurements.
class Variant {
 public:
  Variant(std::string name, Config config, World& world, const TokenFile& file)
      : world_(world),
        setup_(set_up(config, world.size())),
        data_(file, {.seq_len = kLength,
                     .lane_sequences = setup_.batching.lane_sequences,
                     .total_sequences = setup_.batching.total_sequences}),
        runtime_(setup_, world, {.order = StreamOrder::concurrent}) {
    result_.name = std::move(name);
    result_.tokens = setup_.batching.total_sequences * kLength;
    result_.received = runtime_.plan().units.bytes().all();
    runtime_.engine().initialize();
  }

  void step(bool counts) {
    Engine& engine = runtime_.engine();
    const double waited = engine.waited_seconds();
    world_.barrier("bench");
    const double mine = seconds_of([&] {
      const StepResult r = engine.step(data_, {.data_step = number_,
                                               .update = number_ + 1,
                                               .lr = 1e-3,
                                               .loss_scale = 1,
                                               .targets = data_.target_count(number_)});
      result_.grad_norm = r.grad_norm;
    });
    ++number_;
    const std::vector<double> all =
        world_.all_gather(std::vector<double>{mine, engine.waited_seconds() - waited});
    if (!counts) return;
    double slowest = 0, exposed = 0;
    for (size_t i = 0; i < all.size(); i += 2)
      slowest = std::max(slowest, all[i]), exposed += all[i + 1] / world_.size();
    seconds_.push_back(slowest);
    exposed_.push_back(exposed);
  }

  const std::vector<double>& seconds() const { return seconds_; }
  StrategyResult result(const Variant& first) const {
    StrategyResult r = result_;
    r.steps = static_cast<int>(seconds_.size());
    r.seconds = spread(seconds_);
    r.exposed = spread(exposed_);
    std::vector<double> ratios;
    for (size_t i = 0; i < seconds_.size(); ++i) ratios.push_back(seconds_[i] / first.seconds_[i]);
    r.ratio = quantile(ratios, 0.5);
    return r;
  }

 private:
  World& world_;
  RunSetup setup_;
  Data data_;
  TrainingRuntime runtime_;
  int64_t number_ = 0;
  StrategyResult result_;
  std::vector<double> seconds_, exposed_;
};

}  // namespace

std::vector<StrategyResult> measure_strategies(World& world, const StrategyOptions& options) {
  const RandomTokens tokens(world.size() * kSequences * kLength * 64 + 1, kVocab);
  std::vector<std::unique_ptr<Variant>> variants;
  const auto add = [&](const char* name, auto&& change) {
    Config config = small_llama(options, world.size());
    change(config.parallel);
    variants.push_back(std::make_unique<Variant>(name, config, world, tokens.file()));
  };
  add("no_shard", [](ParallelConfig& p) { p.strategy = Strategy::no_shard; });
  add("full_shard", [](ParallelConfig&) {});
  add("full_shard, no prefetch", [](ParallelConfig& p) {
    p.forward_prefetch = false;
    p.backward_prefetch = BackwardPrefetch::none;
  });
  double spent = 0;
  for (int round = 0; spent < options.seconds || round < kWarmUp + kLeastSteps; ++round)
    for (const auto& variant : variants) {
      variant->step(round >= kWarmUp);
      if (round >= kWarmUp) spent += variant->seconds().back();  // same value on all ranks
    }
  std::vector<StrategyResult> results;
  for (const auto& variant : variants) results.push_back(variant->result(*variants.front()));
  return results;
}

std::string strategy_table(const std::vector<StrategyResult>& results, const std::string& compute,
                           int ranks) {
  std::ostringstream out;
  out << ranks << " ranks, " << compute << ", llama, 4 layers, hidden 512, " << results.front().tokens / ranks
      << " tokens on each rank, " << results.front().steps << " interleaved steps of each variant\n"
      << "                           step ms  p10..p90 ms   / " << results.front().name
      << "   exposed comm ms  p10..p90      received MB  tokens/s  gradient norm\n"
      << std::fixed;
  const auto ms = [](double s) { return s * 1e3; };
  for (const StrategyResult& r : results)
    out << std::left << std::setw(24) << r.name << std::right << std::setprecision(1) << std::setw(10)
        << ms(r.seconds.median) << std::setw(8) << ms(r.seconds.p10) << ".." << std::left << std::setw(7)
        << ms(r.seconds.p90) << std::right << std::setprecision(3) << std::setw(9) << r.ratio
        << std::setprecision(1) << std::setw(18) << ms(r.exposed.median) << std::setw(8) << ms(r.exposed.p10)
        << ".." << std::left << std::setw(7) << ms(r.exposed.p90) << std::right << std::setw(13)
        << static_cast<double>(r.received) * 1e-6 << std::setprecision(0) << std::setw(10)
        << static_cast<double>(r.tokens) / r.seconds.median << std::setprecision(6) << std::setw(15)
        << r.grad_norm << '\n';
  return std::move(out).str();
}

}  // namespace flatshard::bench
