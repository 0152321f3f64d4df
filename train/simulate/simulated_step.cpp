#include "train/simulate/simulated_step.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "runtime/recording.h"
#include "train/simulate/exchange_times.h"
#include "train/step/training_runtime.h"

namespace flatshard {
namespace {

// What a running exchange takes of the kernels beside it: of the multiprocessors, 16 of 132 on NVLink and 4
// on a network (the channels that NCCL opens on H100); of the memory, its bytes are read and written once.
constexpr double kProcessorsOfLinks = 0.12, kProcessorsOfNetwork = 0.03;
constexpr double kMemoryPasses = 2;
// With CUDA graphs the host enqueues a step as a whole; the GPU starts a kernel in 1.5 us: assumed.
constexpr double kIssueInGraphUs = 1.5;

enum class Part : uint8_t { products, attention, others, update };

// Items of the replay with what they are for.
struct Row {
  ReplayRow replay;
  std::vector<Part> parts;  // by item
  std::vector<int> stream_of_record;
  std::vector<std::string> streams;
  int compute = 0;
};

// Numbers for what several rows do together.
class Meetings {
 public:
  int of_message(const std::string& communicator, int from, int to, int count) {
    return number({communicator, from, to, count});
  }
  int of_all(const std::string& communicator, int count) { return number({communicator, -1, -1, count}); }

 private:
  using Key = std::tuple<std::string, int, int, int>;
  int number(const Key& key) {
    return numbers_.try_emplace(key, static_cast<int>(numbers_.size())).first->second;
  }
  std::map<Key, int> numbers_;
};

class RowBuilder {
 public:
  RowBuilder(const RunSetup& setup, const Cluster& cluster, const OpProfile& profile, int stage,
             Meetings& meetings)
      : setup_(setup),
        cluster_(cluster),
        profile_(profile),
        stage_(stage),
        rank_(stage * setup.groups.ranks),
        meetings_(meetings) {}

  Row build() {
    Recording recording;
    plan_run(setup_, rank_, &recording);
    for (const OpCall& op : recording.ops())
      times_.push_back(op_time(cluster_, op, setup_.seq_len(), profile_));
    Row row;
    for (const Recording::StreamInfo& stream : recording.streams()) {
      if (stream.name == "compute") row.compute = static_cast<int>(row.streams.size());
      row.streams.push_back(stream.name);
    }
    row.replay.streams = static_cast<int>(row.streams.size());
    row.replay.issue_seconds = 1e-6 * (setup_.uses_graphs() ? kIssueInGraphUs : cluster_.issue_us);
    row.replay.items.reserve(recording.items().size());
    for (const Recording::Item& item : recording.items()) add(row, recording, item);
    return row;
  }

 private:
  void add(Row& row, const Recording& recording, const Recording::Item& item) {
    using Kind = Recording::Kind;
    switch (item.kind) {
      case Kind::begin:
        in_update_ = in_update_ || recording.scopes()[static_cast<size_t>(item.index)] == "update";
        return;
      case Kind::end:
        return;
      case Kind::record:
        row.stream_of_record.resize(static_cast<size_t>(item.index) + 1, -1);
        row.stream_of_record.back() = item.stream;
        return push(row, {.kind = ReplayItem::Kind::record, .stream = item.stream, .number = item.index});
      case Kind::wait:
        return push(row, {.kind = ReplayItem::Kind::wait, .stream = item.stream, .number = item.index});
      case Kind::op:
        return add_op(row, recording.ops()[static_cast<size_t>(item.index)],
                      times_[static_cast<size_t>(item.index)], item);
      case Kind::exchange:
        return add_exchange(row, recording.exchanges()[static_cast<size_t>(item.index)], item);
    }
  }

  void push(Row& row, const ReplayItem& item, Part part = Part::others) const {
    row.replay.items.push_back(item);
    row.parts.push_back(in_update_ ? Part::update : part);
  }

  void add_op(Row& row, const OpCall& op, const OpTime& time, const Recording::Item& item) const {
    ReplayItem added{
        .stream = item.stream, .seconds = time.seconds, .processors = time.processors, .memory = time.memory};
    if (item.on_host) {
      added.use = Use::host;
      added.seconds = op.bytes / (cluster_.update_gbps * 1e9);
      added.processors = added.memory = 0;
    } else if (op.path != OpCall::Path::none) {
      added.use = op.path == OpCall::Path::to_device ? Use::to_device : Use::to_host;
    }
    const bool product = op.name == "gemm" || op.name == "four_bit_product";
    push(row, added,
         product                            ? Part::products
         : op.name.starts_with("attention") ? Part::attention
                                            : Part::others);
  }

  void add_exchange(Row& row, const ExchangeCall& call, const Recording::Item& item) {
    const auto [at, is_new] =
        exchanges_.try_emplace({call.communicator, call.verb, call.bytes, call.peer}, ExchangeTime{});
    if (is_new)
      at->second = exchange_time(cluster_, call.verb, static_cast<double>(call.bytes),
                                 members_of(setup_, rank_, call));
    const ExchangeTime& time = at->second;
    ReplayItem added{.use = time.on_network ? Use::network : Use::links,
                     .stream = item.stream,
                     .seconds = time.seconds,
                     .processors = time.on_network ? kProcessorsOfNetwork : kProcessorsOfLinks,
                     .memory = kMemoryPasses * time.bus_gbps / cluster_.gpu.memory_gbps};
    if (setup_.pipeline.stages > 1 && (call.peer >= 0 || std::string_view(call.communicator) == "stages")) {
      added.kind = ReplayItem::Kind::meeting;
      const bool sends = std::string_view(call.verb) == "send";
      const int from = sends ? stage_ : call.peer, to = sends ? call.peer : stage_;
      int& count = counts_[{call.communicator, call.peer < 0 ? -1 : from, call.peer < 0 ? -1 : to}];
      added.number = call.peer < 0 ? meetings_.of_all(call.communicator, count)
                                   : meetings_.of_message(call.communicator, from, to, count);
      ++count;
    }
    push(row, added);
  }

  const RunSetup& setup_;
  const Cluster& cluster_;
  const OpProfile& profile_;
  int stage_, rank_;
  Meetings& meetings_;
  std::vector<OpTime> times_;  // by op of the recording
  std::map<std::tuple<std::string, std::string, int64_t, int>, ExchangeTime> exchanges_;
  std::map<std::tuple<std::string, int, int>, int> counts_;
  bool in_update_ = false;
};

std::vector<Row> rows_of(const RunSetup& setup, const Cluster& cluster, const OpProfile& profile) {
  Meetings meetings;
  std::vector<Row> rows;
  for (int stage = 0; stage < setup.pipeline.stages; ++stage)
    rows.push_back(RowBuilder(setup, cluster, profile, stage, meetings).build());
  return rows;
}

// By the name of the stream that records what compute waits for.
double& waited(StepParts& parts, const std::string& stream) {
  if (stream == "gather") return parts.gathers;
  if (stream == "reduce") return parts.reductions;
  if (stream.starts_with("copy")) return parts.copies;
  if (stream.starts_with("send") || stream.starts_with("receive")) return parts.stages;
  return parts.launches;
}

StepParts parts_of(const Row& row, const std::vector<ReplayTimes>& times) {
  StepParts parts;
  double last = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const ReplayItem& item = row.replay.items[i];
    if (item.stream != row.compute || item.kind == ReplayItem::Kind::record) continue;
    const auto [begin, end] = times[i];
    if (item.kind == ReplayItem::Kind::wait) {
      const auto number = static_cast<size_t>(item.number);
      const int on = number < row.stream_of_record.size() ? row.stream_of_record[number] : -1;
      if (on >= 0 && end > last) waited(parts, row.streams[static_cast<size_t>(on)]) += end - last;
    } else {
      parts.launches += std::max(0.0, begin - last);
      double& part = item.use == Use::host                                    ? parts.host
                     : item.use == Use::to_device || item.use == Use::to_host ? parts.copies
                     : item.use == Use::links || item.use == Use::network     ? parts.reductions
                     : row.parts[i] == Part::update                           ? parts.update
                     : row.parts[i] == Part::products                         ? parts.products
                     : row.parts[i] == Part::attention                        ? parts.attention
                                                                              : parts.others;
      part += end - begin;
    }
    last = std::max(last, end);
  }
  return parts;
}

double work_of(const StepParts& parts) {
  return parts.products + parts.attention + parts.others + parts.update;
}

// The sum a + factor (b - a) of every part, not below 0.
StepParts extended(const StepParts& a, const StepParts& b, double factor) {
  StepParts sum;
  for (const auto part : {&StepParts::products, &StepParts::attention, &StepParts::others, &StepParts::update,
                          &StepParts::gathers, &StepParts::reductions, &StepParts::stages, &StepParts::copies,
                          &StepParts::host, &StepParts::launches})
    sum.*part = std::max(0.0, a.*part + factor * (b.*part - a.*part));
  return sum;
}

struct Played {
  double seconds = 0, exchanged = 0;
  double slower = 0;  // seconds if all kernels take kSlower times as long
  StepParts parts{};
};
constexpr double kSlower = 1.02;

double end_of_step(const std::vector<Row>& rows, const Replayed& played) {
  double end = 0;
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t i = 0; i < rows[r].replay.items.size(); ++i)
      if (rows[r].replay.items[i].stream == rows[r].compute) end = std::max(end, played.times[r][i].end);
  return end;
}

Replayed replay_rows(const std::vector<Row>& rows) {
  std::vector<ReplayRow> plain;
  for (const Row& row : rows) plain.push_back(row.replay);
  return replay(plain);
}

Played play(const RunSetup& setup, const Cluster& cluster, const OpProfile& profile) {
  std::vector<Row> rows = rows_of(setup, cluster, profile);
  const Replayed played = replay_rows(rows);
  Played result{.seconds = end_of_step(rows, played)};
  double most = -1;
  for (size_t r = 0; r < rows.size(); ++r) {
    const StepParts parts = parts_of(rows[r], played.times[r]);
    if (work_of(parts) <= most) continue;
    most = work_of(parts);
    result.parts = parts;
    result.exchanged = 0;
    for (const ReplayItem& item : rows[r].replay.items)
      if (item.use == Use::links || item.use == Use::network) result.exchanged += item.seconds;
  }
  for (Row& row : rows)
    for (ReplayItem& item : row.replay.items)
      if (item.use == Use::kernels) item.seconds *= kSlower;
  result.slower = end_of_step(rows, replay_rows(rows));
  return result;
}

// The same step with fewer micro-batches. A step's time grows by the same amount with every further round of
// micro-steps, as the schedule repeats.
RunSetup with_micro_steps(const RunSetup& setup, int64_t micro_steps) {
  RunSetup fewer = setup;
  Batching& batching = fewer.batching;
  batching.total_sequences = batching.total_sequences / batching.micro_steps * micro_steps;
  if (micro_steps % batching.lane_steps != 0) batching.lane_steps = micro_steps;
  batching.micro_steps = micro_steps;
  fewer.units.micro_steps = micro_steps;
  fewer.units.lane_steps = batching.lane_steps;
  return fewer;
}

// The z of which a standard normal number is larger with probability q.
double upper_quantile(double q) {
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) / 2 > q ? low : high) = middle;
  }
  return (low + high) / 2;
}

// How much slower than the mean the slowest of n ranks is, at the quantile u of steps, in deviations.
double slowest_of(double n, double u) { return upper_quantile(-std::expm1(std::log(u) / n)); }

}  // namespace

double StepParts::sum() const {
  return products + attention + others + update + gathers + reductions + stages + copies + host + launches;
}

SimulatedStep simulate_step(const RunSetup& setup, const Cluster& cluster, const OpProfile& profile) {
  Cluster shared = cluster;  // GPUs that copy at the same time
  int on_node = 0;
  for (const int host : setup.hosts) on_node += host == setup.hosts.front() ? 1 : 0;
  shared.host_gbps /= std::clamp(on_node, 1, cluster.gpus_per_switch);
  const int64_t all = setup.batching.micro_steps, stages = setup.pipeline.stages;
  constexpr int64_t kLongLane = 8;  // the end of a longer one hardly counts
  const int64_t lane = setup.batching.lane_steps > kLongLane ? 1 : setup.batching.lane_steps;
  // Rounds of as many micro-steps as a schedule or a lane repeats after.
  const int64_t round = std::max(stages, lane), first = std::max<int64_t>(2, round),
                second = first + std::max<int64_t>(1, round);
  SimulatedStep step;
  double slower = 0;
  if (all <= second) {
    const Played whole = play(setup, shared, profile);
    step.seconds = whole.seconds, step.exchanged = whole.exchanged, step.parts = whole.parts;
    slower = whole.slower;
  } else {
    const Played a = play(with_micro_steps(setup, first), shared, profile),
                 b = play(with_micro_steps(setup, second), shared, profile);
    const double factor = static_cast<double>(all - first) / static_cast<double>(second - first);
    const auto extend = [&](double from, double to) { return from + factor * (to - from); };
    step.seconds = extend(a.seconds, b.seconds);
    step.exchanged = extend(a.exchanged, b.exchanged);
    slower = extend(a.slower, b.slower);
    step.parts = extended(a.parts, b.parts, factor);
  }
  // Slower kernels may happen to leave an exchange more room, but no step ends earlier for it on average.
  const double slope = std::max(0.0, (slower - step.seconds) / (kSlower - 1)),
               deviation = std::hypot(cluster.jitter_fixed, cluster.jitter_step);
  const auto at = [&](double u) { return step.seconds + slope * deviation * slowest_of(setup.ranks(), u); };
  step.p10 = at(0.1), step.p50 = at(0.5), step.p90 = at(0.9);
  return step;
}

}  // namespace flatshard
