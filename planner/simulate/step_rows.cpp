#include "planner/simulate/step_rows.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "planner/simulate/replay.h"
#include "planner/times/exchange_times.h"
#include "runtime/check.h"
#include "train/step/training_runtime.h"

namespace flatshard {
namespace {

// The shares that a running exchange takes from the kernels beside it: 16 of 132 multiprocessors on NVLink
// and 4 on a network (the channels that NCCL opens on H100); in memory, its bytes are read and written once.
constexpr double kProcessorsOfLinks = 0.12, kProcessorsOfNetwork = 0.03;
constexpr double kMemoryPasses = 2;
// With CUDA graphs the host enqueues a step as a whole, and every op starts sooner: the 3,003 ops of a step
// take 48.2 instead of 52.2 ms on an H200 (bench/results/h200.md). Not simulated: every graph begins when all
// streams have ended the one before, so that on several ranks no exchange overlaps the next micro-step.
constexpr double kIssueInGraphUs = 0.5, kSavedInGraphUs = 1.4;

// The calls in which several rows meet: communicator, stage of the sender and of the receiver, or -1 if all
// ranks take part, and the number of the call among those of this kind.
using Call = std::tuple<std::string, int, int, int>;
using Meetings = std::map<Call, int>;  // each with its number
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

  StepRow build() {
    StepRow row;
    row.rank = rank_;
    Recording& recording = row.recording;
    plan_run(setup_, rank_, &recording);
    OpProfile profile = profile_;
    if (setup_.uses_graphs()) profile.seconds_per_op -= 1e-6 * kSavedInGraphUs;
    for (const OpCall& op : recording.ops())
      times_.push_back(op_time(cluster_, op, setup_.seq_len(), profile));
    const auto& streams = recording.streams();
    for (size_t i = 0; i < streams.size(); ++i)
      if (streams[i].name == "compute") row.compute = static_cast<int>(i);
    row.replay.streams = static_cast<int>(streams.size());
    if (cluster_.cpu) {  // compute work runs at the call; on one rank, all work
      row.replay.host_stream = row.compute;
      row.replay.in_order = setup_.ranks() == 1;
    }
    row.replay.issue_seconds = 1e-6 * (setup_.uses_graphs() ? kIssueInGraphUs : cluster_.issue_us);
    row.replay.items.reserve(recording.items().size());
    for (const Recording::Item& item : recording.items()) add(row, recording, item);
    for (int record = 0; record < recording.first_record(); ++record)
      row.stream_of_record[static_cast<size_t>(record)] =
          row.stream_of_record[static_cast<size_t>(recording.last_record(record))];
    return row;
  }

 private:
  void add(StepRow& row, const Recording& recording, const Recording::Item& item) {
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

  void push(StepRow& row, const ReplayItem& item, StepPart part = StepPart::others) const {
    row.replay.items.push_back(item);
    row.parts.push_back(in_update_ ? StepPart::update : part);
  }

  void add_op(StepRow& row, const OpCall& op, const OpTime& time, const Recording::Item& item) const {
    ReplayItem added{
        .stream = item.stream, .seconds = time.seconds, .processors = time.processors, .memory = time.memory};
    if (item.on_host) {
      added.use = Use::host;
      added.seconds = op.bytes / (cluster_.update_gbps * 1e9);
      added.processors = added.memory = 0;
    } else if (op.path != OpCall::Path::none) {
      added.use = op.path == OpCall::Path::to_device ? Use::to_device : Use::to_host;
    }
    push(row, added,
         is_product(op.name)     ? StepPart::products
         : is_attention(op.name) ? StepPart::attention
                                 : StepPart::others);
  }

  void add_exchange(StepRow& row, const ExchangeCall& call, const Recording::Item& item) {
    const auto [at, is_new] =
        exchanges_.try_emplace({call.communicator, call.verb, call.bytes, call.peer}, ExchangeTime{});
    if (is_new)
      at->second = exchange_time(cluster_, call.verb, static_cast<double>(call.bytes),
                                 members_of(setup_, rank_, call));
    const ExchangeTime& time = at->second;
    ReplayItem added{.use = time.on_network ? Use::network : Use::links,
                     .stream = item.stream,
                     .seconds = time.seconds,
                     .processors = processors_of_exchange(time.on_network),
                     .memory = kMemoryPasses * time.bus_gbps / cluster_.gpu.memory_gbps};
    const bool of_experts = std::string_view(call.verb) == "exchange";
    if (setup_.pipeline.stages > 1 && !of_experts &&
        (call.peer >= 0 || std::string_view(call.communicator) == "stages")) {
      added.kind = ReplayItem::Kind::meeting;
      const bool sends = std::string_view(call.verb) == "send";
      const auto [from, to] = call.peer < 0 ? std::pair(-1, -1)
                              : sends       ? std::pair(stage_, call.peer)
                                            : std::pair(call.peer, stage_);
      const int count = counts_[{call.communicator, from, to}]++, next = static_cast<int>(meetings_.size());
      added.number = meetings_.try_emplace({call.communicator, from, to, count}, next).first->second;
    }
    push(row, added, of_experts ? StepPart::experts : StepPart::others);
  }

  double processors_of_exchange(bool on_network) const {
    if (cluster_.cpu) return cluster_.cpu->taken_by_exchange;
    return on_network ? kProcessorsOfNetwork : kProcessorsOfLinks;
  }

  const RunSetup& setup_;
  const Cluster& cluster_;
  const OpProfile& profile_;
  int stage_, rank_;
  Meetings& meetings_;
  std::vector<OpTime> times_;  // time of each op of the recording
  std::map<std::tuple<std::string, std::string, int64_t, int>, ExchangeTime> exchanges_;
  std::map<std::tuple<std::string, int, int>, int> counts_;
  bool in_update_ = false;
};

std::vector<ReplayRow> replays_of(const std::vector<StepRow>& rows) {
  std::vector<ReplayRow> replays;
  for (const StepRow& row : rows) replays.push_back(row.replay);
  return replays;
}

}  // namespace

std::string traced_name(const Recording& recording, const Recording::Item& item) {
  const auto index = static_cast<size_t>(item.index);
  if (item.kind == Recording::Kind::op) return std::string(recording.ops()[index].name);
  const ExchangeCall& call = recording.exchanges()[index];
  return str(call.verb, ' ', call.label);
}

std::vector<StepRow> step_rows(const RunSetup& setup, const Cluster& cluster, const OpProfile& profile) {
  Meetings meetings;
  std::vector<StepRow> rows;
  for (int stage = 0; stage < setup.pipeline.stages; ++stage)
    rows.push_back(RowBuilder(setup, cluster, profile, stage, meetings).build());
  return rows;
}

double end_of_step(const std::vector<StepRow>& rows, const Replayed& played) {
  double end = 0;
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t i = 0; i < rows[r].replay.items.size(); ++i)
      if (rows[r].replay.items[i].stream == rows[r].compute) end = std::max(end, played.times[r][i].end);
  return end;
}

Replayed replay_rows(std::vector<StepRow>& rows) {
  for (StepRow& row : rows) row.replay.carried.clear();
  Replayed played = replay(replays_of(rows));
  const double end = end_of_step(rows, played);
  bool carries = false;
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r].replay.carried = carried_work(rows[r].replay, rows[r].recording, played.times[r], end);
    carries = carries || !rows[r].replay.carried.empty();
  }
  return carries ? replay(replays_of(rows)) : played;
}

Cluster shared_bus(const RunSetup& setup, const Cluster& cluster) {
  Cluster shared = cluster;
  const auto on_node = std::count(setup.hosts.begin(), setup.hosts.end(), setup.hosts.front());
  shared.host_gbps /= static_cast<double>(std::clamp<int64_t>(on_node, 1, cluster.gpus_per_switch));
  return shared;
}

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

}  // namespace flatshard
