#include "planner/search/fit_advice.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "planner/search/setting_search.h"
#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr int kMostRanks = 1 << 16;

struct Switch {
  // Changes a setting and returns its arguments on the command line, or "" if the config has it already.
  std::string (*apply)(Config& config);
  const char* cost;
};

std::string set(bool& key, const char* argument) {
  if (key) return "";
  key = true;
  return argument;
}

std::string recompute_except_attention(Config& c) {
  if (repeats_blocks(c.train.recompute)) return "";
  c.train.recompute = Recompute::except_attention;
  return "--train.recompute=except_attention";
}

std::string recompute(Config& c) {
  if (c.train.recompute == Recompute::full) return "";
  c.train.recompute = Recompute::full;
  return "--train.recompute=true";
}

std::string shard_all(Config& c) {
  if (c.parallel.strategy == Strategy::full_shard) return "";
  c.parallel.strategy = Strategy::full_shard;
  c.parallel.group_size = 0;
  return "--parallel.strategy=full_shard";
}

std::string halve_batch(Config& c) {
  if (c.train.batch_size_per_device % 2 != 0) return "";
  c.train.batch_size_per_device /= 2;
  return str("--train.batch_size_per_device=", c.train.batch_size_per_device);
}

std::string single_sequence(Config& c) {
  if (c.train.batch_size_per_device == 1) return "";
  c.train.batch_size_per_device = 1;
  const bool has_lane_size = c.train.lane_size > 0;
  c.train.lane_size = 0;
  return str("--train.batch_size_per_device=1", has_lane_size ? " --train.lane_size=0" : "");
}

std::string shorten_head(Config& c) {
  if (c.train.head_chunk <= kShortHeadChunk) return "";
  c.train.head_chunk = kShortHeadChunk;
  return str("--train.head_chunk=", kShortHeadChunk);
}

std::string page_moments(Config& c) {
  if (c.optimizer.kind.paged) return "";
  c.optimizer.kind.paged = true;
  return "--optimizer.kind=" + name_of(c.optimizer.kind);
}

std::string store_activations(Config& c) {
  if (!repeats_blocks(c.train.recompute)) return "";
  return set(c.train.offload_activations, "--train.offload_activations=true");
}

std::string shorten_tiles(Config& c) {
  if (!has_shorter_tiles(c)) return "";
  c.train.tile = kTile;
  return str("--train.tile=", kTile);
}

std::string sum_in_rank_order(Config& c) {
  if (c.parallel.reduction != Reduction::exact) return "";
  c.parallel.reduction = Reduction::sequential;
  return "--parallel.reduction=sequential";
}

std::string offload(Config& c) { return set(c.parallel.offload, "--parallel.offload=true"); }

std::string short_moments(Config& c) {
  const OptimizerKind* const rule = c.optimizer.kind.row;
  for (const OptimizerKind& kind : optimizer_kinds()) {
    if (kind.without_blocks != rule) continue;
    c.optimizer.kind.row = &kind;
    return "--optimizer.kind=" + name_of(c.optimizer.kind);
  }
  return "";
}

std::string narrow_compute(Config& c) {
  if (c.precision.compute != Precision::fp32) return "";
  c.precision.compute = Precision::bf16;
  c.precision.tf32 = false;
  return "--precision.compute=bf16";
}

std::string adapters(Config& c) {
  if (c.lora.rank > 0) return "";
  c.lora.rank = 16;
  c.trainable = {"*"};
  return "--lora.rank=16";
}

std::string four_bits(Config& c) {
  if (c.lora.rank == 0 || c.quant.base) return "";
  c.quant.base = FourBitKind::nf4;
  c.quant.nested = true;
  return "--quant.base=nf4 --quant.double=true";
}

// The switch with the least consequences first.
constexpr Switch kSwitches[] = {
    {recompute_except_attention, "same results"},
    {recompute, "same results"},
    {shard_all, "same results"},
    {halve_batch, "more micro-steps; other rounding unless the lane stays"},
    {shorten_head, "a slower output head; other rounding"},
    {page_moments, "same results; moments move to host memory"},
    {store_activations, "same results; activations move to host memory"},
    {sum_in_rank_order, "bits depend on the number of ranks"},
    {offload, "same results; shards move to host memory"},
    {single_sequence, "more micro-steps; other rounding"},
    {shorten_tiles, "MLPs are computed again; other rounding"},
    {narrow_compute, "compute with 8 bits of precision"},
    {short_moments, "moments of 8 bits"},
    {adapters, "trains adapters instead of the model"},
    {four_bits, "frozen weights of 4 bits"},
};

// Adds switches until the run fits, then removes the unnecessary ones.
void find_enough(FitAdvice& advice, const Config& config, int ranks, int64_t usable, const Planner& plan) {
  std::vector<const Switch*> chosen;
  const auto planned = [&](const std::vector<const Switch*>& switches) {
    Config changed = config;
    for (const Switch* s : switches) s->apply(changed);
    return plan(changed, ranks);
  };
  const auto fits = [&](const std::optional<PlannedRun>& run) { return run && run->device_bytes <= usable; };
  std::optional<PlannedRun> best = plan(config, ranks);
  for (const Switch& s : kSwitches) {
    chosen.push_back(&s);
    const std::optional<PlannedRun> next = planned(chosen);
    if (next && next->device_bytes < best->device_bytes)
      best = next;
    else
      chosen.pop_back();
    if (fits(best)) break;
  }
  if (!fits(best)) return;
  for (auto i = std::ssize(chosen) - 1; i >= 0; --i) {
    std::vector<const Switch*> fewer = chosen;
    fewer.erase(fewer.begin() + i);
    const std::optional<PlannedRun> run = planned(fewer);
    if (!fits(run)) continue;
    chosen = std::move(fewer);
    best = run;
  }
  Config changed = config;
  for (const Switch* s : chosen) advice.enough.push_back(s->apply(changed));
  advice.with_enough = *best;
}

std::string host_text(const PlannedRun& run) {
  return run.host_bytes > 0 ? str("; ", human_bytes(run.host_bytes), " of host memory per rank") : "";
}

// A clause about the usable memory: " that h100-80gb offers ...".
std::string offer_of(const Cluster& cluster) {
  if (cluster.cpu) return " that are free for a rank now";
  const int64_t all = cluster.gpu.memory_bytes();
  return str(" that ", cluster.gpu.name, " offers\n          (", human_bytes(all), " less ",
             human_bytes(all - usable_bytes(cluster)), " assumed for CUDA and its libraries)");
}

// The fastest of the settings found, if a step with it is shorter than `seconds` by a few percent.
std::string fastest_line(const char* label, const SearchResult& found, double seconds) {
  constexpr double kWorthwhile = 0.97;
  if (found.best.empty() || found.best.front().step.p50 > kWorthwhile * seconds) return "";
  const FoundSetting& best = found.best.front();
  return str(label, human_seconds(best.step.p50), " per step with ", best.arguments, "\n          ",
             human_bytes(best.device_bytes), host_text({.host_bytes = best.host_bytes}), "; ",
             best.effect.empty() ? "same results" : best.effect, '\n');
}

std::string switch_lines(const FitAdvice& advice, const PlannedRun& current) {
  std::ostringstream out;
  out << "switches, each alone:\n";
  size_t width = 0;
  for (const MemorySwitch& s : advice.switches) width = std::max(width, s.arguments.size());
  for (const MemorySwitch& s : advice.switches)
    out << "  " << std::left << std::setw(static_cast<int>(width)) << s.arguments << std::right << "  saves "
        << std::setw(9) << human_bytes(current.device_bytes - s.alone.device_bytes) << ", " << std::setw(7)
        << human_seconds(current.seconds) << " -> " << std::setw(7) << human_seconds(s.alone.seconds)
        << " per step; " << s.cost << '\n';
  return std::move(out).str();
}

std::string advice_lines(const FitAdvice& advice, const PlannedRun& current) {
  std::string text = advice.switches.empty() ? "" : switch_lines(advice, current);
  if (!advice.enough.empty()) {
    text += "fits with ";
    for (const std::string& arguments : advice.enough) text += ' ' + arguments;
    text += str("\n          ", human_bytes(advice.with_enough.device_bytes), ", ",
                human_seconds(advice.with_enough.seconds), " per step", host_text(advice.with_enough), '\n');
  } else {
    text += "no combination of switches is enough on this number of ranks\n";
  }
  if (advice.ranks) text += str("fits on    ", *advice.ranks, " ranks without any switch\n");
  return text;
}

}  // namespace

FitAdvice advise(const Config& config, int ranks, const PlannedRun& current, int64_t usable,
                 const Planner& plan) {
  FitAdvice advice;
  for (const Switch& s : kSwitches) {
    Config changed = config;
    const std::string arguments = s.apply(changed);
    if (arguments.empty()) continue;
    const std::optional<PlannedRun> alone = plan(changed, ranks);
    if (alone && alone->device_bytes < current.device_bytes)
      advice.switches.push_back({arguments, s.cost, *alone});
  }
  find_enough(advice, config, ranks, usable, plan);
  for (int more = 2 * ranks; more <= kMostRanks; more *= 2) {
    const std::optional<PlannedRun> run = plan(config, more);
    if (!run) break;  // the batch has too few sequences for the ranks
    if (run->device_bytes > usable) continue;
    advice.ranks = more;
    break;
  }
  return advice;
}

std::string describe_fit(const RunSetup& setup, const RunPlan& plan, const Cluster& cluster) {
  const auto planned = [](const RunSetup& s, double seconds) -> PlannedRun {
    const LargestPlan largest = plan_largest(s);
    return {.device_bytes = largest.device_bytes, .host_bytes = largest.plan.host_bytes, .seconds = seconds};
  };
  const SimulatedStep step = simulate_step(setup, cluster);
  const PlannedRun current = planned(setup, step.p50);
  const int64_t usable = usable_bytes(cluster), free = usable - current.device_bytes;
  const std::string offered = str(human_bytes(usable), offer_of(cluster), host_text(current), '\n',
                                  describe_estimate(step, setup, plan, cluster));
  const auto search = [&](SearchScope scope) {
    return search_settings(setup.config, setup.ranks(), cluster, scope);
  };
  if (free >= 0) {
    const SearchResult same = search(SearchScope::same_results), any = search(SearchScope::usual);
    const double best =
        same.best.empty() ? current.seconds : std::min(current.seconds, same.best.front().step.p50);
    return str("fits      ", human_bytes(current.device_bytes), " of the ", offered,
               fastest_line("faster    ", same, current.seconds), fastest_line("fastest   ", any, best));
  }
  const Planner planner = [&](const Config& config, int ranks) -> std::optional<PlannedRun> {
    try {
      const RunSetup other = set_up(config, ranks, {}, Purpose::plan);
      return planned(other, simulate_step(other, cluster).p50);
    } catch (const Error&) {  // the settings exclude each other
      return std::nullopt;
    }
  };
  const FitAdvice advice = advise(setup.config, setup.ranks(), current, usable, planner);
  return str("too large ", human_bytes(current.device_bytes), ", ", human_bytes(-free), " more than the ",
             offered, advice_lines(advice, current),
             fastest_line("fastest   ", search(SearchScope::usual),
                          advice.enough.empty() ? INFINITY : advice.with_enough.seconds));
}

}  // namespace flatshard
