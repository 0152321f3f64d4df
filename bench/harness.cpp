#include "bench/harness.h"

#include <algorithm>
#include <cmath>

#include "bench/words.h"
#include "runtime/stopwatch.h"

namespace flatshard::bench {
namespace {

constexpr int kWarmUps = 3;
constexpr int kEnoughSamples = 20;
constexpr double kEnoughSeconds = 0.5;
// A sample is quiet if the threads waited for a processor less than this fraction of its time. With fewer
// than kFewestQuiet quiet samples, all samples are used.
constexpr double kQuietShare = 0.05;
constexpr int kFewestQuiet = 5;
constexpr double kSampleSeconds = 200e-6;  // shorter calls are batched to this time
// A sample of the ceiling takes as long as the neighboring sample of the case, up to this many seconds, so
// that both are exposed to the same interruptions.
constexpr double kLongestNeighbour = 0.05;
// A copy of the arguments is reset after this many calls, so that the outputs of an op that accumulates stay
// of order one.
constexpr int64_t kRunsPerReset = 8;

int64_t argument_bytes(const Case& c) {
  int64_t bytes = 0;
  for (const Arg& arg : c.args) bytes += arg.shape.size() * size_of(arg.dtype);
  return bytes;
}

// Calls of one case that cycle through the copies of its arguments.
class Rotation {
 public:
  Rotation(const Case& c, Device device, int copies)
      : setup_(c, {.device = device, .copies = copies}),
        watch_(setup_.stream()),
        copies_(copies),
        on_gpu_(device.is_cuda()) {
    const bool updates =
        std::any_of(c.args.begin(), c.args.end(), [](const Arg& a) { return a.role == Role::updated; });
    if (updates) calls_until_reset_ = copies * kRunsPerReset;
  }

  // The time that the threads have waited for a processor. 0 on a GPU, which has its own clock.
  double waited() const { return on_gpu_ ? 0 : waited_seconds(); }
  int64_t most_calls() const { return calls_until_reset_ / (on_gpu_ ? 2 : 1); }

  // The time per call, over `calls` calls. On a GPU the same number of calls precedes them and hides the
  // launch overhead of the timed ones.
  double seconds_per_call(int64_t calls) {
    const int64_t given = on_gpu_ ? 2 * calls : calls;
    if (calls_ + given > calls_until_reset_) {
      setup_.reset();
      calls_ = 0;
    }
    calls_ += given;
    if (on_gpu_) launch(calls);
    watch_.start();
    launch(calls);
    watch_.stop();
    return watch_.seconds() / static_cast<double>(calls);
  }

  const Tensors& tensors() const { return setup_.tensors(); }

 private:
  void launch(int64_t calls) {
    for (int64_t i = 0; i < calls; ++i, next_ = (next_ + 1) % copies_) setup_.launch(next_);
  }

  Setup setup_;
  Stopwatch watch_;
  int copies_, next_ = 0;
  bool on_gpu_;
  int64_t calls_ = 0, calls_until_reset_ = INT64_MAX / 4;
};

double median_sample(Ceiling& ceiling) {
  return spread({ceiling.sample(), ceiling.sample(), ceiling.sample()}).median;
}

// A sample of a case between two samples of its ceiling.
struct Sample {
  double seconds;  // seconds per call
  double share;    // fraction of the ceiling
  bool quiet;      // true if the threads did not wait for processors
};

// Takes samples until enough are quiet or the time is over.
std::vector<Sample> take_samples(Rotation& rotation, Ceiling& ceiling, double work, int64_t calls,
                                 double limit) {
  std::vector<Sample> samples;
  int quiet = 0;
  double quiet_seconds = 0;
  const auto began = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  // The current rate of the ceiling, and whether its sample was quiet.
  const auto neighbour = [&](double seconds) {
    const double waited = rotation.waited();
    double rate = 0;
    const double wall = seconds_of([&] { rate = ceiling.sample(std::min(seconds, kLongestNeighbour)); });
    return std::pair(rate, rotation.waited() - waited <= kQuietShare * wall);
  };
  auto [before, was_quiet] = neighbour(0);
  do {
    const double waited = rotation.waited();
    const double seconds = rotation.seconds_per_call(calls), wall = seconds * static_cast<double>(calls);
    const bool is_quiet = rotation.waited() - waited <= kQuietShare * wall;
    const auto [after, stays_quiet] = neighbour(wall);
    samples.push_back(
        {seconds, work / seconds / ((before + after) / 2), was_quiet && is_quiet && stays_quiet});
    if (samples.back().quiet) {
      ++quiet;
      quiet_seconds += wall;
    }
    before = after;
    was_quiet = stays_quiet;
  } while ((quiet < kEnoughSamples || quiet_seconds < kEnoughSeconds) && elapsed() < limit);
  return samples;
}

// Computes the times of a call with `work` bytes or operations. Returns the rate of the ceiling, chosen such
// that the median time corresponds to the median fraction of the ceiling over the samples.
double time_calls(Rotation& rotation, Ceiling& ceiling, double work, double limit, Result& result) {
  double one = 0, warming = 0;
  for (int i = 0; i < kWarmUps && warming < limit; ++i) warming += one = rotation.seconds_per_call(1);
  result.calls_per_sample =
      std::clamp(static_cast<int64_t>(std::ceil(kSampleSeconds / one)), int64_t{1}, rotation.most_calls());

  std::vector<Sample> samples = take_samples(rotation, ceiling, work, result.calls_per_sample, limit);
  const auto is_quiet = [](const Sample& s) { return s.quiet; };
  const int64_t quiet = std::count_if(samples.begin(), samples.end(), is_quiet);
  result.disturbed = quiet < std::min<int64_t>(kFewestQuiet, std::ssize(samples));
  if (!result.disturbed) std::erase_if(samples, [&](const Sample& s) { return !s.quiet; });
  result.samples = static_cast<int>(samples.size());
  result.out_of_time = result.samples < kEnoughSamples;

  std::vector<double> seconds, shares;
  for (const Sample& s : samples) {
    seconds.push_back(s.seconds);
    shares.push_back(s.share);
  }
  result.seconds = spread(seconds);
  return work / result.seconds.median / spread(shares).median;
}

}  // namespace

double Result::floor_seconds() const {
  const double copying = bytes / copy_rate;
  return matrix_bound ? std::max(copying, flops / matrix_rate) : copying;
}

int copies_to_rotate(int64_t bytes, const Limits& limits) {
  check(bytes > 0, "the case has no arguments, which cannot be timed");
  const int64_t wanted = std::max<int64_t>(2, 3 * limits.cache_bytes / bytes + 1);
  const int64_t fitting = std::max<int64_t>(1, limits.memory_bytes / bytes);
  return static_cast<int>(std::min({wanted, fitting, int64_t{kMaxCopies}}));
}

std::vector<Case> select_cases(std::vector<Case> cases, const std::vector<std::string>& words) {
  std::erase_if(cases, [&](const Case& c) { return !contains_all(label(c), words); });
  std::string wanted;
  for (const std::string& word : words) wanted += (wanted.empty() ? "" : " ") + word;
  check(!cases.empty(), "no case matches \"", wanted, "\"; --list prints all cases");
  return cases;
}

const Accuracy& Harness::accuracy(const Case& c) {
  const auto [entry, is_new] = checked_.try_emplace({c.op, c.dtype});
  Accuracy& worst = entry->second;
  if (!is_new) return worst;
  for (const Case& test : tests_) {
    if (test.op != c.op || test.dtype != c.dtype) continue;
    const Accuracy now{
        .error = max_error(test, {.device = device_}), .tolerance = tolerance(test), .worst = label(test)};
    if (worst.worst.empty() || now.error / now.tolerance > worst.error / worst.tolerance) worst = now;
  }
  return worst;
}

Result Harness::measure(const Case& c) {
  Result result;
  result.op = c.op;
  result.shape = c.shape;
  result.dtype = c.dtype;
  if (device_.is_cuda() && !c.has_cuda_kernel) {
    result.skipped = "no CUDA kernel";
    return result;
  }
  result.accuracy = accuracy(c);
  if (result.accuracy.passed()) time(c, result);
  return result;
}

void Harness::time(const Case& c, Result& result) {
  result.copies = copies_to_rotate(argument_bytes(c), limits_);
  Rotation rotation(c, device_, result.copies);
  result.bytes = c.min_bytes(rotation.tensors());
  result.flops = c.flops(rotation.tensors());
  Ceiling* const matrix = ceilings_.matrix(c.dtype);
  result.matrix_bound = c.matrix_bound && matrix;
  if (result.matrix_bound) {
    result.matrix_rate = time_calls(rotation, *matrix, result.flops, limits_.seconds, result);
    result.copy_rate = median_sample(ceilings_.copy);
  } else {
    result.copy_rate = time_calls(rotation, ceilings_.copy, result.bytes, limits_.seconds, result);
    if (matrix) result.matrix_rate = median_sample(*matrix);
  }
}

}  // namespace flatshard::bench
