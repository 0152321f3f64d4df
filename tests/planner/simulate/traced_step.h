#pragma once
// A step of a traced run on the CPU as durations of the items of its recording. Spans and items of a stream
// have the same order, so each item takes the time of its span.

#include <string>
#include <vector>

#include "planner/simulate/replay.h"
#include "runtime/recording.h"
#include "train/setup/run_setup.h"

namespace flatshard::test {

struct TracedSpan {
  std::string name;
  double begin = 0, end = 0;  // seconds on rank 0's clock
};
struct TracedStream {
  std::string name;
  // The spans of all steps in the order of their begins, without waits and spans around others.
  std::vector<TracedSpan> spans;
};
// The work of one rank.
struct TracedRank {
  std::vector<TracedSpan> steps;
  std::vector<TracedStream> streams;
};

// The ranks of a trace.json.
std::vector<TracedRank> read_trace(const std::string& path);

// A step of a trace as rows of a replay, one for each rank.
struct TracedStep {
  std::vector<ReplayRow> rows;
  std::vector<Recording> recordings;
  std::vector<std::vector<ReplayTimes>> measured;  // times by row and item; {0, 0} for records and waits
};
// Step `index` of the traced steps, which must not be the first. Its times begin when the first rank begins
// it. An Error if the trace is of another run.
TracedStep traced_step(const RunSetup& setup, const std::vector<TracedRank>& ranks, size_t index);

}  // namespace flatshard::test
