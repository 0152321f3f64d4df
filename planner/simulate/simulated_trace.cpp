#include <algorithm>
#include <chrono>

#include "planner/simulate/simulated_step.h"
#include "planner/simulate/step_rows.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

// A picture of more micro-steps would be too narrow to show one of them.
constexpr int64_t kMostMicroSteps = 8;

// Adds the spans of a row to a trace.
class SpanWriter {
 public:
  explicit SpanWriter(Trace& trace, const StepRow& row) : trace_(trace), row_(row) {
    for (const Recording::StreamInfo& stream : row.recording.streams()) trace.add_row(stream.name);
    lines_.resize(row.recording.streams().size());
  }

  void write(const std::vector<ReplayTimes>& times) {
    for (const ReplayItem& item : row_.replay.carried) {
      Line& line = lines_[static_cast<size_t>(item.stream)];
      const double begin = line.end + item.gap;
      if (item.kind == ReplayItem::Kind::work)
        add(item.stream, line, "of the step before", {begin, begin + item.seconds});
    }
    size_t next = 0;
    for (const Recording::Item& item : row_.recording.items()) {
      Line& line = lines_[static_cast<size_t>(item.stream)];
      switch (item.kind) {
        case Recording::Kind::begin:
          line.open.push_back({row_.recording.scopes()[static_cast<size_t>(item.index)]});
          break;
        case Recording::Kind::end:
          close(item.stream, line);
          break;
        case Recording::Kind::record:
          ++next;
          break;
        case Recording::Kind::wait:
          wait(item.stream, line, times[next++]);
          break;
        case Recording::Kind::op:
        case Recording::Kind::exchange:
          add(item.stream, line, traced_name(row_.recording, item), times[next++]);
          break;
      }
    }
  }

 private:
  // A scope that is not closed yet; it begins with the first work inside.
  struct Scope {
    std::string name;
    double begin = -1;
  };
  struct Line {
    std::vector<Scope> open;
    double end = 0;  // end of the last work
  };

  Trace::Clock::time_point at(double seconds) const {
    return trace_.start() +
           std::chrono::duration_cast<Trace::Clock::duration>(std::chrono::duration<double>(seconds));
  }

  void add(int stream, Line& line, const std::string& name, const ReplayTimes& times) {
    for (Scope& scope : line.open)
      if (scope.begin < 0) scope.begin = times.begin;
    line.end = times.end;
    trace_.add_span(stream, name, at(times.begin), at(times.end));
  }

  void wait(int stream, Line& line, const ReplayTimes& times) {
    constexpr double kShown = 1e-7;
    if (stream == row_.compute && times.end - line.end > kShown)
      add(stream, line, "wait", {line.end, times.end});
  }

  void close(int stream, Line& line) {
    const Scope scope = line.open.back();
    line.open.pop_back();
    if (scope.begin >= 0) trace_.add_span(stream, scope.name, at(scope.begin), at(line.end));
  }

  Trace& trace_;
  const StepRow& row_;
  std::vector<Line> lines_;
};

std::string describe(const RunSetup& setup, int64_t micro_steps) {
  std::string text = setup.pipeline.stages > 1
                         ? str("simulated, of a rank of each of ", setup.pipeline.stages, " stages")
                         : "simulated, of one rank";
  if (micro_steps < setup.batching.micro_steps)
    text += str(", ", micro_steps, " of ", setup.batching.micro_steps, " micro-steps");
  return text;
}

}  // namespace

StepTimeline simulated_trace(const RunSetup& setup, const Cluster& cluster) {
  const int64_t micro_steps =
      std::min(setup.batching.micro_steps, std::max<int64_t>(kMostMicroSteps, setup.pipeline.stages));
  std::vector<StepRow> rows = step_rows(with_micro_steps(setup, micro_steps), shared_bus(setup, cluster));
  const Replayed played = replay_rows(rows);
  const double end = end_of_step(rows, played);
  StepTimeline traced{.ranks = {}, .what = describe(setup, micro_steps)};
  for (size_t r = 0; r < rows.size(); ++r) {
    Trace& trace = *traced.ranks.emplace_back(std::make_unique<Trace>(rows[r].rank));
    SpanWriter(trace, rows[r]).write(played.times[r]);
    const auto begin = trace.start();
    trace.add_span(
        trace.add_row("steps"), "step 1", begin,
        begin + std::chrono::duration_cast<Trace::Clock::duration>(std::chrono::duration<double>(end)));
  }
  return traced;
}

}  // namespace flatshard
