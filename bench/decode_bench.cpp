#include "bench/decode_bench.h"

#include <algorithm>
#include <iomanip>
#include <memory>
#include <sstream>

#include "kernels/simd.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"
#include "tools/inference/generator.h"

namespace flatshard::bench {
namespace {

constexpr int64_t kReadBytes = int64_t{256} << 20, kReadBlock = int64_t{1} << 20;
constexpr int kWarmUp = 3, kLeastPasses = 5;
constexpr int64_t kMostTexts = 16, kMostPasses = 200;
constexpr double kQuietShare = 0.02;  // fraction of a pass spent waiting for a processor

// The rate at which all threads read memory.
Ceiling read_ceiling() {
  const auto memory = std::make_shared<Memory>(Device::cpu(), kReadBytes);
  std::fill_n(static_cast<float*>(memory->data()), kReadBytes / 4, 1.0f);
  const auto sums = std::make_shared<std::vector<float>>(static_cast<size_t>(kReadBytes / kReadBlock));
  return Ceiling({{"vector loop", static_cast<double>(kReadBytes), [memory, sums] {
                     return seconds_of([&] {
                       parallel_for(kReadBytes / kReadBlock, [&](int64_t block) {
                         const float* at =
                             static_cast<const float*>(memory->data()) + block * (kReadBlock / 4);
                         (*sums)[static_cast<size_t>(block)] = simd::sum_vectors(
                             kReadBlock / 4, [&](int64_t i, auto lanes, simd::Floats& total) {
                               total += simd::load(at + i, lanes);
                             });
                       });
                     });
                   }}});
}

double weight_bytes(const ModelConfig& c, int64_t parameters, DType dtype) {
  const int64_t unread = *c.tied ? 0 : c.vocab * c.hidden;
  return static_cast<double>((parameters - unread) * size_of(dtype));
}

// Appends tokens to texts that begin with `context` tokens.
DecodeResult measure_one(Generator& generator, Ceiling& reading, int64_t texts, int64_t context,
                         double limit) {
  const ModelConfig& c = generator.config();
  const DType dtype = generator.options().dtype;
  std::vector<NextToken> next;
  for (int64_t text = 0; text < texts; ++text) {
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < context; ++i)
      prompt.push_back(static_cast<int32_t>((i * 7919 + text * 104729) % c.vocab));
    generator.read_prompt(text, prompt);
    next.push_back({text, static_cast<int32_t>(text % c.vocab)});
  }
  DecodeResult result{.dtype = dtype, .texts = texts, .context = context};
  result.weight_bytes = weight_bytes(c, generator.parameter_count(), dtype);
  result.cache_bytes =
      static_cast<double>(2 * texts * context * c.layers * c.kv_heads * c.head_dim * size_of(dtype));
  std::vector<double> seconds, quiet_seconds, rates;
  double spent = 0;
  for (int pass = 0; pass < kMostPasses && (spent < limit || std::ssize(seconds) < kLeastPasses); ++pass) {
    rates.push_back(reading.sample());
    const double waited = waited_seconds();
    const double time = seconds_of([&] { generator.append(next); });
    if (pass < kWarmUp) continue;
    seconds.push_back(time);
    spent += time + static_cast<double>(kReadBytes) / rates.back();
    if (waited_seconds() - waited < kQuietShare * time) quiet_seconds.push_back(time);
  }
  result.disturbed = std::ssize(quiet_seconds) < kLeastPasses;
  const std::vector<double>& used = result.disturbed ? seconds : quiet_seconds;
  result.seconds = spread(used);
  result.passes = static_cast<int>(used.size());
  result.read_rate = quantile(rates, 0.5);
  return result;
}

}  // namespace

std::vector<DecodeResult> measure_decode(const std::string& folder, const std::vector<DType>& dtypes,
                                         double seconds) {
  Ceiling reading = read_ceiling();
  std::vector<DecodeResult> results;
  for (const DType dtype : dtypes) {
    const int64_t positions = read_hf_config(folder + "/config.json").max_positions;
    const int64_t most = std::min<int64_t>(positions - kMostPasses, 1024);
    check(most >= 1, folder, ": has positions for ", positions, " tokens, must have more than ", kMostPasses);
    Generator generator(folder, {.dtype = dtype, .texts = kMostTexts, .capacity = most + kMostPasses});
    for (const auto& [texts, context] : {std::pair<int64_t, int64_t>{1, 16}, {1, most}, {4, 16}, {16, 16}})
      results.push_back(measure_one(generator, reading, texts, std::min(context, most), seconds));
  }
  return results;
}

std::string decode_table(const std::string& folder, const std::vector<DecodeResult>& results) {
  std::ostringstream out;
  out << std::left << std::setw(28) << folder
      << "texts context  ms/pass  p10..p90         floor ms = weights "
      << "+ cache MB at GB/s   pass/floor  tokens/s\n";
  for (const DecodeResult& r : results) {
    const auto ms = [](double s) { return s * 1e3; };
    out << std::fixed << std::left << std::setw(6) << name_of(r.dtype) << std::setw(3)
        << (r.disturbed ? "~" : "") << std::right << std::setw(4) << r.passes << " passes       "
        << std::setw(7) << r.texts << std::setw(8) << r.context << std::setprecision(2) << std::setw(9)
        << ms(r.seconds.median) << std::setw(7) << ms(r.seconds.p10) << ".." << std::left << std::setw(8)
        << ms(r.seconds.p90) << std::right << std::setw(8) << ms(r.floor_seconds()) << std::setprecision(0)
        << std::setw(10) << r.weight_bytes * 1e-6 << " + " << std::setw(5) << r.cache_bytes * 1e-6
        << std::setprecision(1) << std::setw(11) << r.read_rate * 1e-9 << std::setprecision(2)
        << std::setw(12) << r.seconds.median / r.floor_seconds() << std::setprecision(1) << std::setw(11)
        << r.tokens_per_second() << '\n';
  }
  return std::move(out).str();
}

}  // namespace flatshard::bench
