#include "bench/lora_bench.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace flatshard::bench {
namespace {

constexpr size_t kLeastRounds = 5;

StepOptions with(StepOptions options, Trained trained) {
  options.trained = trained;
  return options;
}

}  // namespace

LoraBench::LoraBench(StepOptions options, World& world, Ceilings& ceilings)
    : adapters_(with(options, Trained::adapters), world, ceilings),
      frozen_(with(options, Trained::first_norm), world, ceilings),
      full_(with(options, Trained::all), world, ceilings) {}

LoraRound LoraBench::round() {
  return {.adapters = adapters_.sample(), .frozen = frozen_.sample(), .full = full_.sample()};
}

std::vector<LoraRound> LoraBench::measure(double seconds) {
  std::vector<LoraRound> rounds, quiet;
  for (double spent = 0; spent < seconds || rounds.size() < kLeastRounds;) {
    const LoraRound r = round();
    rounds.push_back(r);
    if (r.quiet()) quiet.push_back(r);
    spent += r.adapters.seconds + r.frozen.seconds + r.full.seconds;
  }
  return quiet.size() < kLeastRounds ? rounds : quiet;
}

std::string lora_header(const StepOptions& o) {
  std::ostringstream out;
  out << o.model << ", " << o.batch << " x " << o.seq_len
      << " tokens, adapters of rank 8 on all linear layers, "
      << "dropout " << o.lora_dropout << ", interleaved steps\n"
      << "trained             step ms  p10..p90 ms   / frozen      loss\n";
  return std::move(out).str();
}

std::string lora_lines(const std::string& compute, const std::vector<LoraRound>& rounds) {
  std::ostringstream out;
  const auto line = [&](const char* name, StepSample LoraRound::*step) {
    std::vector<double> seconds, ratios;
    for (const LoraRound& r : rounds) {
      seconds.push_back((r.*step).seconds);
      ratios.push_back((r.*step).seconds / r.frozen.seconds);
    }
    const Spread s = spread(seconds);
    out << std::left << std::setw(6) << compute << std::setw(10) << name << std::right << std::fixed
        << std::setprecision(1) << std::setw(11) << s.median * 1e3 << std::setw(8) << s.p10 * 1e3 << ".."
        << std::left << std::setw(8) << s.p90 * 1e3 << std::right << std::setprecision(3) << std::setw(8)
        << quantile(ratios, 0.5) << std::setw(10) << (rounds.back().*step).loss << '\n';
  };
  line("adapters", &LoraRound::adapters);
  line("frozen", &LoraRound::frozen);
  line("full", &LoraRound::full);
  const bool quiet = std::all_of(rounds.begin(), rounds.end(), [](const LoraRound& r) { return r.quiet(); });
  out << "      " << rounds.size() << " rounds" << (quiet ? "" : ", disturbed by other programs (~)") << '\n';
  return std::move(out).str();
}

}  // namespace flatshard::bench
