#include "planner/search/setting_search.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>

#include "planner/simulate/step_rows.h"
#include "planner/times/op_times.h"
#include "runtime/check.h"
#include "runtime/parallel.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

// Memory for the CUDA context, cuBLASLt and the loaded kernels, which no plan contains.
constexpr int64_t kReservedBytes = int64_t{3} << 29;
constexpr size_t kShown = 10;
// A change has to shorten the step by this factor.
constexpr double kWorthwhile = 0.995;

std::string joined(const std::vector<std::string>& changes) {
  std::string text;
  for (const std::string& change : changes) text += (text.empty() ? "" : " ") + change;
  return text;
}

bool includes(const std::vector<std::string>& all, const std::vector<std::string>& some) {
  return std::all_of(some.begin(), some.end(), [&](const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  });
}

// The effect of a setting on the results of a run (configs/SHARDING.md); "" if there is none.
std::string effect_on_results(const RunSetup& from, const RunSetup& to) {
  if (from.config.optimizer.kind.row != to.config.optimizer.kind.row) return "moments of 8 bits";
  const auto exact = [](const RunSetup& s) { return s.config.parallel.reduction == Reduction::exact; };
  const auto lane = [](const RunSetup& s) { return lane_size_of(s.config, s.groups.ranks); };
  const Batching &a = from.batching, &b = to.batching;
  const bool same_lanes = lane(from) == lane(to) && a.lane_sequences == b.lane_sequences,
             same_order = (a.ranks == b.ranks && a.lanes == b.lanes) ||
                          (a.same_bits_anywhere() && b.same_bits_anywhere()),
             same_parts = from.config.train.head_chunk == to.config.train.head_chunk &&
                          from.config.train.tile == to.config.train.tile;
  return exact(from) && exact(to) && same_lanes && same_order && same_parts ? "" : "other rounding";
}

// The plan of the first rank of a stage.
LargestPlan plan_of(const RunSetup& setup, int stage) {
  LargestPlan largest{.plan = plan_run(setup, stage * setup.groups.ranks)};
  RunPlan& plan = largest.plan;
  if (!setup.device.is_cuda()) plan.host_bytes = 0;  // the host is the device
  largest.device_bytes = plan.memory_bytes - plan.host_bytes + plan.nccl_bytes;
  return largest;
}

class Search {
 public:
  Search(const Config& config, int ranks, const Cluster& cluster, SearchScope scope)
      : ranks_(ranks), cluster_(cluster), scope_(scope), given_(set_up(config, ranks, {}, Purpose::plan)) {}

  const RunSetup& given() const { return given_; }
  // Plans these candidates and adds them. Impossible ones are marked as refused.
  void plan(const Candidates& candidates) {
    const size_t before = all_.size();
    all_.resize(before + candidates.size());
    parallel_for(std::ssize(candidates), [&](int64_t i) {
      Entry& entry = all_[before + static_cast<size_t>(i)];
      entry.candidate = candidates[static_cast<size_t>(i)];
      try {
        plan(entry);
      } catch (const Error&) {  // the settings exclude each other
        entry.state = State::refused;
      }
    });
  }

  void simulate() {
    std::vector<size_t> order;
    for (size_t i = 0; i < all_.size(); ++i)
      if (all_[i].state == State::fits) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return all_[a].least_seconds < all_[b].least_seconds; });
    // Settings are simulated in waves of a fixed size, so that the result does not depend on the number of
    // threads.
    constexpr size_t kWave = 32;
    for (size_t first = 0; first < order.size(); first += kWave) {
      if (all_[order[first]].least_seconds > seconds_to_beat()) return;
      parallel_for(static_cast<int64_t>(std::min(kWave, order.size() - first)), [&](int64_t i) {
        Entry& entry = all_[order[first + static_cast<size_t>(i)]];
        entry.step = simulate_step(set_up(entry.candidate.config, ranks_, {}, Purpose::plan), cluster_);
        entry.state = State::simulated;
      });
    }
  }

  // The candidates of the best settings.
  Candidates best() const {
    Candidates candidates;
    for (const size_t i : best_entries()) candidates.push_back(all_[i].candidate);
    return candidates;
  }

  // Variants with less memory of the candidates that need too much: if nothing fits, of all candidates that
  // are sharded over all ranks; otherwise only of candidates for which smaller moments may be enough.
  Candidates smaller() const {
    Candidates candidates;
    const bool none_fits = best_entries().empty();
    for (const Entry& entry : all_) {
      if (entry.state != State::too_large) continue;
      const ParallelConfig& parallel = entry.candidate.config.parallel;
      const bool may_fit = none_fits ? parallel.strategy == Strategy::full_shard && parallel.stages == 1
                                     : entry.device_bytes - entry.moment_bytes <= usable_bytes(cluster_);
      if (!may_fit) continue;
      for (Candidate& c : with_less_memory(entry.candidate, none_fits)) candidates.push_back(std::move(c));
    }
    return candidates;
  }

  SearchResult result() const {
    SearchResult result{.planned = std::ssize(all_)};
    for (const Entry& entry : all_) {
      ++(entry.state == State::refused     ? result.refused
         : entry.state == State::too_large ? result.too_large
         : entry.state == State::simulated ? result.simulated
                                           : result.slower);
    }
    for (const size_t i : best_entries()) {
      const Entry& entry = all_[i];
      const RunSetup setup = set_up(entry.candidate.config, ranks_, {}, Purpose::plan);
      result.best.push_back(
          {.config = entry.candidate.config,
           .arguments = joined(entry.candidate.changes),
           .device_bytes = entry.device_bytes,
           .host_bytes = entry.host_bytes,
           .effect = effect_on_results(given_, setup),
           .step = entry.step,
           .utilization = utilization(entry.step, setup, plan_largest(setup).plan, cluster_),
           .limit = describe_limit(entry.step, setup)});
    }
    for (const size_t i : simulated_entries())
      result.all.push_back({joined(all_[i].candidate.changes), all_[i].step.p50});
    return result;
  }

 private:
  enum class State : uint8_t { refused, too_large, fits, simulated };
  struct Entry {
    Candidate candidate;
    State state = State::refused;
    int64_t device_bytes = 0, host_bytes = 0, moment_bytes = 0;
    double least_seconds = 0;
    SimulatedStep step{};
  };

  void plan(Entry& entry) {
    const RunSetup setup = set_up(entry.candidate.config, ranks_, {}, Purpose::plan);
    if (scope_ == SearchScope::same_results && !effect_on_results(given_, setup).empty()) return;
    // Most settings that do not fit need far too much memory already in the first stage, with only as many
    // micro-batches as fill the pipeline.
    if (const int64_t few = setup.pipeline.stages; setup.batching.micro_steps > few || few > 1) {
      take_memory(entry, plan_of(with_micro_steps(setup, std::min(few, setup.batching.micro_steps)), 0));
      if (entry.device_bytes - entry.moment_bytes > usable_bytes(cluster_)) return;
    }
    const LargestPlan largest = plan_largest(setup);
    take_memory(entry, largest);
    entry.host_bytes = largest.plan.host_bytes;
    entry.least_seconds = least_seconds(setup, largest.plan);
    if (entry.device_bytes <= usable_bytes(cluster_)) entry.state = State::fits;
  }

  static void take_memory(Entry& entry, const LargestPlan& largest) {
    entry.state = State::too_large;
    entry.device_bytes = largest.device_bytes;
    for (const MemoryRow& row : largest.plan.memory)
      if (row.name == "optimizer") entry.moment_bytes = row.bytes;
  }

  // A lower bound of the step's time: its products at the rate of the largest ones.
  double least_seconds(const RunSetup& setup, const RunPlan& plan) const {
    const double tokens = static_cast<double>(setup.batching.total_sequences * setup.seq_len());
    const Recompute recompute = setup.config.train.recompute;
    const double again = (repeats_blocks(recompute) ? plan.flops.repeated : 0) +
                         (recompute == Recompute::full ? plan.flops.repeated_attention : 0);
    return tokens * (plan.flops.causal + again) /
           (ranks_ * matrix_rate(cluster_, setup.compute, setup.config.precision.tf32) *
            (cluster_.cpu ? 1 : most_of_matrix_peak() / least_product_factor(cluster_.measured_ops)));
  }

  double seconds_to_beat() const {
    const std::vector<size_t> best = best_entries();
    return best.size() < kShown ? INFINITY : all_[best.back()].step.p50;
  }

  // The simulated entries, the fastest first.
  std::vector<size_t> simulated_entries() const {
    std::vector<size_t> order;
    for (size_t i = 0; i < all_.size(); ++i)
      if (all_[i].state == State::simulated) order.push_back(i);
    const auto key = [&](size_t i) { return std::pair(all_[i].step.p50, all_[i].candidate.changes.size()); };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  }

  std::vector<size_t> best_entries() const {
    const std::vector<size_t> order = simulated_entries();
    std::vector<size_t> best;
    for (const size_t i : order) {
      if (best.size() == kShown) break;
      if (is_worth_its_changes(all_[i], order)) best.push_back(i);
    }
    return best;
  }

  // Whether no setting with only some of its changes is about as fast.
  bool is_worth_its_changes(const Entry& entry, const std::vector<size_t>& order) const {
    return std::none_of(order.begin(), order.end(), [&](size_t i) {
      const Entry& other = all_[i];
      return other.candidate.changes.size() < entry.candidate.changes.size() &&
             entry.step.p50 > kWorthwhile * other.step.p50 &&
             includes(entry.candidate.changes, other.candidate.changes);
    });
  }

  int ranks_;
  const Cluster& cluster_;
  SearchScope scope_;
  RunSetup given_;
  std::vector<Entry> all_;
};

// A row of the table, with fixed widths of the columns.
std::string table_row(const std::vector<std::string>& cells) {
  constexpr int kWidths[] = {2, 9, 20, 11, 8, 11, 11, 15};
  std::ostringstream out;
  for (size_t i = 0; i < cells.size(); ++i) out << std::setw(kWidths[i]) << cells[i];
  return std::move(out).str() + '\n';
}

std::string row_of(size_t number, const FoundSetting& s, double tokens, int ranks, const Cluster& cluster) {
  const double rate = tokens / s.step.p50, price = cluster.price_per_hour;
  constexpr int64_t kWorthNaming = 1 << 20;
  std::vector<std::string> cells{std::to_string(number),
                                 human_seconds(s.step.p50),
                                 str(human_seconds(s.step.p10), " to ", human_seconds(s.step.p90)),
                                 human_count(rate / ranks),
                                 fixed(100 * s.utilization, 1) + " %",
                                 human_bytes(s.device_bytes),
                                 s.host_bytes < kWorthNaming ? "-" : human_bytes(s.host_bytes)};
  if (price > 0) cells.push_back(fixed(ranks * price / 3600 / rate * 1e9, 2));
  return table_row(cells);
}

}  // namespace

int64_t usable_bytes(const Cluster& cluster) {
  return cluster.gpu.memory_bytes() - (cluster.cpu ? 0 : kReservedBytes);
}

LargestPlan plan_largest(const RunSetup& setup) {
  LargestPlan largest;
  for (int stage = 0; stage < setup.pipeline.stages; ++stage) {
    LargestPlan its = plan_of(setup, stage);
    if (stage == 0 || its.device_bytes > largest.device_bytes) largest = std::move(its);
  }
  return largest;
}

SearchResult search_settings(const Config& config, int ranks, const Cluster& cluster, SearchScope scope) {
  Search search(config, ranks, cluster, scope);
  search.plan(candidates_of(config, ranks, cluster, scope, search.given().model.experts));
  search.simulate();
  if (scope != SearchScope::same_results) {
    search.plan(search.smaller());
    search.simulate();
  }
  if (scope == SearchScope::all) {
    Candidates more;
    for (const Candidate& best : search.best())
      for (Candidate& c : with_fewer_waits(best)) more.push_back(std::move(c));
    search.plan(more);
    search.simulate();
  }
  return search.result();
}

std::string describe_search(const SearchResult& result, const Config& config, int ranks,
                            const Cluster& cluster, bool verbose) {
  std::ostringstream out;
  out << "search    " << with_commas(result.planned) << " settings for " << counted(ranks, "rank") << " of "
      << cluster.source << ": " << with_commas(result.simulated) << " simulated, "
      << with_commas(result.slower) << " more fit but have more work,\n          "
      << with_commas(result.too_large) << " need more than " << human_bytes(usable_bytes(cluster)) << ", "
      << with_commas(result.refused) << " exclude each other\n";
  if (result.best.empty())
    out << "nothing fits: more ranks, adapters (--lora.rank=16) or 4-bit weights (--quant.base=nf4) take "
           "less memory\n";
  else
    out << table_row({"", "step", "10 to 90 % of them", cluster.cpu ? "tok/s/rank" : "tok/s/GPU", "MFU",
                      cluster.cpu ? "memory" : "GPU", "host",
                      cluster.price_per_hour > 0 ? "$/10^9 tokens" : ""});
  const double tokens = static_cast<double>(config.train.total_batch_size * config.data.seq_len);
  for (size_t i = 0; i < result.best.size(); ++i) {
    const FoundSetting& s = result.best[i];
    out << row_of(i + 1, s, tokens, ranks, cluster) << "      "
        << (s.arguments.empty() ? "the config as it is" : s.arguments) << "\n      "
        << (s.effect.empty() ? "same results" : s.effect) << "; limited by " << s.limit << '\n';
  }
  if (!result.best.empty() && config.train.steps > 0)
    out << "run       " << with_commas(config.train.steps) << " steps take "
        << human_duration(static_cast<double>(config.train.steps) * result.best.front().step.p50)
        << " with the first of them\n";
  out << "          " << describe_rates(cluster) << '\n';
  if (verbose) {
    out << "all       simulated settings, the fastest first:\n";
    for (const SimulatedSetting& s : result.all)
      out << std::setw(18) << fixed(1e3 * s.seconds, 2) << " ms  "
          << (s.arguments.empty() ? "the config as it is" : s.arguments) << '\n';
  }
  return std::move(out).str();
}

}  // namespace flatshard
