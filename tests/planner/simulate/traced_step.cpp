#include "tests/planner/simulate/traced_step.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "comm/trace_file.h"
#include "planner/simulate/replay.h"
#include "planner/simulate/step_rows.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/whole_file.h"
#include "train/step/training_runtime.h"

namespace flatshard::test {
namespace {

// Whether a span with this name is around others.
bool is_around(const std::string& name) {
  return name == "update" || name.starts_with("forward ") || name.starts_with("backward ");
}

// A call in which several ranks take part. It has the same `count` among the calls of each of them.
struct Call {
  std::string communicator;
  int first, second;  // the first rank of a group, or the sender and the receiver of a message
  int count;
  auto operator<=>(const Call&) const = default;
};

// One rank's side of a call.
struct Side {
  size_t row, item;
  double begin, end;
};
using Calls = std::map<Call, std::vector<Side>>;

int first_member(const RunSetup& setup, int rank, const std::string& communicator) {
  if (communicator.starts_with("replicas")) return setup.replicas_of(rank).front();
  return communicator == "stages" ? setup.data_rank(rank) : setup.group_of(rank).front();
}

bool takes_time(const Recording::Item& item) {
  return item.kind == Recording::Kind::op || item.kind == Recording::Kind::exchange;
}

// The time of each record in seconds, by its number.
using RecordTimes = std::map<int, double>;

// The times of the records from before a step, from the times that the step before recorded.
RecordTimes of_step_before(const Recording& recording, const RecordTimes& recorded) {
  RecordTimes before;
  for (int record = 0; record < recording.first_record(); ++record)
    if (const auto at = recorded.find(recording.last_record(record)); at != recorded.end())
      before[record] = at->second;
  return before;
}

// Matches the items of one rank with the spans of its streams.
class RowOfTrace {
 public:
  RowOfTrace(const RunSetup& setup, int rank, const TracedRank& traced, size_t step, double zero,
             RecordTimes& recorded, Calls& calls)
      : setup_(setup),
        rank_(rank),
        traced_(traced),
        step_(step),
        zero_(zero),
        host_ready_(zero),
        calls_(calls),
        recorded_(recorded) {}

  void add_to(TracedStep& all) {
    plan_run(setup_, rank_, &recording_);
    const auto& streams = recording_.streams();
    row_.streams = static_cast<int>(streams.size());
    row_.in_order = setup_.ranks() == 1;  // a run on one rank is in order
    names_.resize(streams.size());
    for (const Recording::Item& item : recording_.items())
      if (takes_time(item)) names_[static_cast<size_t>(item.stream)].push_back(traced_name(recording_, item));
    for (size_t s = 0; s < streams.size(); ++s) {
      if (streams[s].name == "compute") row_.host_stream = static_cast<int>(s);
      next_.push_back(first_span(s));
    }
    ready_.assign(streams.size(), zero_);
    for (const Recording::Item& item : recording_.items()) add(item);
    all.rows.push_back(std::move(row_));
    all.measured.push_back(std::move(measured_));
    all.recordings.push_back(std::move(recording_));
  }

 private:
  const TracedStream* traced_stream(size_t s) const {
    for (const TracedStream& stream : traced_.streams)
      if (stream.name == recording_.streams()[s].name) return &stream;
    return nullptr;
  }

  // The first span of the step on a stream. The trace may begin with the end of an exchange of the step
  // before.
  size_t first_span(size_t s) const {
    const std::vector<std::string>& names = names_[s];
    if (names.empty()) return 0;
    const TracedStream* const stream = traced_stream(s);
    constexpr size_t kMostBefore = 64;
    for (size_t before = 0; stream && before <= kMostBefore; ++before) {
      const size_t first = before + step_ * names.size();
      if (first + names.size() > stream->spans.size()) break;
      if (std::equal(names.begin(), names.end(), stream->spans.begin() + static_cast<std::ptrdiff_t>(first),
                     [](const std::string& name, const TracedSpan& span) { return name == span.name; }))
        return first;
    }
    fail(str("the trace has not what the run records for ", recording_.streams()[s].name, " of rank ", rank_,
             ", beginning with ", names.front(), ": it is the trace of another run"));
  }

  void add(const Recording::Item& item) {
    using Kind = Recording::Kind;
    if (item.kind == Kind::begin || item.kind == Kind::end) return;
    ReplayItem added{.stream = item.stream, .number = item.index};
    const auto s = static_cast<size_t>(item.stream);
    const bool by_host = row_.in_order || item.stream == row_.host_stream;
    double& ready = by_host ? host_ready_ : ready_[s];
    ready = std::max(ready, host_ready_);  // the host enqueues it first
    if (!takes_time(item)) {
      if (item.kind == Kind::record)
        recorded_[item.index] = ready;
      else if (const auto at = recorded_.find(item.index); at != recorded_.end())
        ready = std::max(ready, at->second);
      added.kind = item.kind == Kind::record ? ReplayItem::Kind::record : ReplayItem::Kind::wait;
      row_.items.push_back(added);
      measured_.push_back({});
      return;
    }
    const TracedSpan& span = traced_stream(s)->spans[next_[s]++];
    added.seconds = span.end - span.begin;
    added.number = -1;
    const double late = std::max(0.0, span.begin - ready);  // the thread may share its processor
    if (by_host) {
      added.gap = late;
    } else {  // the delay is an item of its own, also before a meeting
      row_.items.push_back({.stream = item.stream, .seconds = late});
      measured_.push_back({ready - zero_, ready - zero_ + late});
    }
    ready = span.end;
    if (item.kind == Kind::exchange) add_call(recording_.exchanges()[static_cast<size_t>(item.index)], span);
    row_.items.push_back(added);
    measured_.push_back({span.begin - zero_, span.end - zero_});
    if (item.kind != Kind::exchange) return;
    row_.items.push_back({.stream = item.stream});  // time that the rank takes longer than others
    measured_.push_back({span.end - zero_, span.end - zero_});
  }

  void add_call(const ExchangeCall& call, const TracedSpan& span) {
    Call key{call.communicator, first_member(setup_, rank_, call.communicator), -1, 0};
    const bool sends = std::string_view(call.verb) == "send";
    if (call.peer >= 0) {
      const int peer = setup_.data_rank(rank_) + call.peer * setup_.groups.ranks;
      key.first = sends ? rank_ : peer;
      key.second = sends ? peer : rank_;
    }
    key.count = counts_[{key.communicator, key.first, key.second}]++;
    calls_[key].push_back({static_cast<size_t>(rank_), row_.items.size(), span.begin, span.end});
  }

  const RunSetup& setup_;
  int rank_;
  const TracedRank& traced_;
  size_t step_;
  double zero_;
  double host_ready_;  // time at which the host can continue
  Calls& calls_;
  Recording recording_;
  ReplayRow row_;
  std::vector<ReplayTimes> measured_;
  std::vector<std::vector<std::string>> names_;  // names of the items of each stream
  std::vector<size_t> next_;
  std::vector<double> ready_;  // time at which the next item of each other stream can begin
  RecordTimes& recorded_;
  std::map<std::tuple<std::string, int, int>, int> counts_;
};

// Makes each call a meeting. It lasts from the arrival of the last rank to its end on the first rank that has
// ended; the other ranks take longer by the item after it.
void meet(TracedStep& step, const Calls& calls) {
  int meetings = 0;
  for (const auto& [call, sides] : calls) {
    double arrived = 0, ended = std::numeric_limits<double>::infinity();
    for (const Side& side : sides) arrived = std::max(arrived, side.begin);
    for (const Side& side : sides) ended = std::min(ended, side.end);
    // A short message has left its sender before the receiver asks for it.
    if (sides.size() == 1 || ended < arrived) continue;
    for (const Side& side : sides) {
      ReplayItem* const item = &step.rows[side.row].items[side.item];
      item->kind = ReplayItem::Kind::meeting;
      item->number = meetings;
      item->seconds = ended - arrived;
      (item + 1)->seconds = side.end - ended;
    }
    ++meetings;
  }
}

}  // namespace

std::vector<TracedRank> read_trace(const std::string& path) {
  const auto json = parse_json<nlohmann::json>(read_whole_file(path, kMostTraceBytes + (1 << 20)));
  std::map<std::pair<int, int>, std::string> names;  // names of the streams, by rank and row
  std::map<int, std::map<std::string, TracedStream>> streams;
  std::map<int, TracedRank> ranks;
  for (const auto& event : json.at("traceEvents")) {
    const int rank = event.at("pid");
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") names[{rank, event.at("tid")}] = event.at("args").at("name");
      continue;
    }
    const double begin = 1e-6 * event.at("ts").get<double>();
    const TracedSpan span{event.at("name"), begin, begin + 1e-6 * event.at("dur").get<double>()};
    const std::string& stream = names.at({rank, event.at("tid")});
    TracedStream& of = streams[rank][stream];
    if (stream == "steps")
      ranks[rank].steps.push_back(span);
    else if (span.name != "wait" && !is_around(span.name))
      of.spans.push_back(span);
  }
  std::vector<TracedRank> found;
  for (auto& [rank, traced] : ranks) {
    for (auto& [name, stream] : streams[rank]) {
      const auto earlier = [](const TracedSpan& a, const TracedSpan& b) { return a.begin < b.begin; };
      std::stable_sort(stream.spans.begin(), stream.spans.end(), earlier);
      stream.name = name;
      traced.streams.push_back(std::move(stream));
    }
    found.push_back(std::move(traced));
  }
  check(!found.empty(), path, ": has no step");
  return found;
}

TracedStep traced_step(const RunSetup& setup, const std::vector<TracedRank>& ranks, size_t index) {
  check(static_cast<int>(ranks.size()) == setup.ranks(), "the trace has ", ranks.size(), " ranks, the run ",
        setup.ranks());
  check(index > 0, "the first traced step cannot be replayed: nothing tells what the one before has left");
  double zero = ranks.front().steps.at(index).begin;
  for (const TracedRank& rank : ranks) zero = std::min(zero, rank.steps.at(index).begin);
  std::vector<RecordTimes> recorded(ranks.size());
  const auto rows_of = [&](size_t traced, Calls& calls) {
    TracedStep step;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      RowOfTrace(setup, static_cast<int>(rank), ranks[rank], traced, zero, recorded[rank], calls)
          .add_to(step);
    return step;
  };
  Calls calls, calls_before;
  const TracedStep before = rows_of(index - 1, calls_before);
  for (size_t r = 0; r < recorded.size(); ++r)
    recorded[r] = of_step_before(before.recordings[r], recorded[r]);
  TracedStep step = rows_of(index, calls);
  meet(step, calls);
  for (size_t r = 0; r < step.rows.size(); ++r)
    step.rows[r].carried = carried_work(step.rows[r], step.recordings[r], before.measured[r], 0);
  return step;
}

}  // namespace flatshard::test
