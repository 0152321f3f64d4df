#include "bench/step_bench.h"

#include <iomanip>
#include <sstream>

#include "bench/random_tokens.h"
#include "kernels/adamw.h"
#include "train/machinery.h"

namespace flatshard::bench {
namespace {

constexpr int kWarmUp = 2, kLeastSteps = 5;
constexpr int64_t kVocab = 50257;

Config gpt2_124m(const std::string& compute, const StepOptions& o) {
  Config c;
  c.run.device = "cpu";
  c.model = {
      .family = "gpt2", .layers = 12, .hidden = 768, .heads = 12, .vocab = kVocab, .max_positions = 1024};
  c.data.seq_len = o.seq_len;
  c.train.steps = 1;
  c.train.total_batch_size = c.train.batch_size_per_device = o.batch;
  c.optimizer.lr = 1e-4;
  c.optimizer.weight_decay = 0.1;
  c.precision.compute = compute;
  return c;
}

double bytes_of_step(Engine& engine) {
  double bytes = 0;
  for (const ShardedUnit& unit : engine.units()) {
    const ShardedUnit::Shard s = unit.shard();
    bytes += min_bytes(AdamW{.p = s.p,
                             .m = s.m,
                             .v = s.v,
                             .copy = s.copy,
                             .g = s.g,
                             .grad_scale = {},
                             .skip = {},
                             .lr = 1,
                             .decay_end = 0,
                             .step = 1});
    bytes += 2.0 * static_cast<double>(s.g.bytes());
    for (const Tensor& value : unit.values()) bytes += 2.0 * static_cast<double>(value.bytes());
  }
  return bytes;
}

}  // namespace

StepResult measure_step(const std::string& compute, const StepOptions& options, World& world,
                        Ceilings& ceilings) {
  const RunSetup setup = set_up(gpt2_124m(compute, options), 1);
  const RandomTokens tokens(options.batch * options.seq_len * 64 + 1, kVocab);
  const Data data(
      tokens.file(),
      {.seq_len = options.seq_len, .lane_sequences = options.batch, .total_sequences = options.batch});
  Machinery machinery(setup, world);
  machinery.engine().initialise();

  StepResult result{
      .compute = compute,
      .tokens = options.batch * options.seq_len,
      .operations = static_cast<double>(options.batch * options.seq_len) * machinery.plan().flops.causal,
      .bytes = bytes_of_step(machinery.engine())};
  Ceiling* matrix = ceilings.matrix(setup.compute);
  check(matrix != nullptr, "there is no matrix ceiling: ", ceilings.no_matrix);
  std::vector<double> seconds, quiet_seconds, matrix_rates, copy_rates;
  const auto step = [&](int64_t number) {
    const auto r = machinery.engine().step(data, {.data_step = number,
                                                  .update = number + 1,
                                                  .lr = 1e-4,
                                                  .loss_scale = 1,
                                                  .targets = data.target_count(number)});
    result.loss = r.lane_losses.front();
  };
  int64_t number = 0;
  while (number < kWarmUp) step(number++);
  double spent = 0;
  while (spent < options.seconds || static_cast<int>(seconds.size()) < kLeastSteps) {
    matrix_rates.push_back(matrix->sample(0.1));
    copy_rates.push_back(ceilings.copy.sample(0.1));
    const double waited = waited_seconds();
    seconds.push_back(seconds_of([&] { step(number++); }));
    constexpr double kQuietShare = 0.02;  // of the step's time spent waiting for a processor
    if (waited_seconds() - waited < kQuietShare * seconds.back()) quiet_seconds.push_back(seconds.back());
    spent += seconds.back();
  }
  result.disturbed = static_cast<int>(quiet_seconds.size()) < kLeastSteps;
  result.seconds = spread(result.disturbed ? seconds : quiet_seconds);
  result.steps = static_cast<int>((result.disturbed ? seconds : quiet_seconds).size());
  result.matrix_rate = quantile(matrix_rates, 0.5);
  result.copy_rate = quantile(copy_rates, 0.5);
  return result;
}

std::string step_header() {
  return "GPT-2 124M, whole steps       tokens/s   step ms  p10..p90 ms    floor ms  = products + bytes   "
         "step/floor  GFLOP/s peak  GB/s copy\n";
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
      << std::setprecision(3) << r.loss << '\n';
  return std::move(out).str();
}

}  // namespace flatshard::bench
