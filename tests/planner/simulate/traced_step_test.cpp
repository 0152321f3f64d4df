// Traced runs, replayed with the durations of their own spans and of the times between them: what a replay
// adds is the order alone.

#include "tests/planner/simulate/traced_step.h"

#include <sstream>

#include "tests/test.h"
#include "tests/workshop.h"
#include "train/config/config.h"

using namespace flatshard;

namespace {

constexpr const char* kModel =
    "--model.layers=4 --model.hidden=192 --model.heads=4 --model.kv_heads=4 --model.ffn=384 "
    "--data.seq_len=64 "
    "--train.total_batch_size=8 --train.batch_size_per_device=2 --train.lane_size=2 --train.steps=17 "
    "--data.packing=wrapped --run.threads=1 --run.trace=3:15 --run.dir=runs/traced "
    "--train.eval_every=0 --data.eval= ";
// Of the last step, what streams do after it is not in the trace.
constexpr int kSteps = 12;
constexpr double kMostError = 0.02;  // of a step; 0.0002 without other processes

std::vector<std::string> overrides_of(const std::string& options) {
  std::vector<std::string> overrides;
  std::istringstream words(options);
  for (std::string word; words >> word;) overrides.push_back(word.substr(2));
  return overrides;
}

RunSetup setup_of(const test::Workshop& workshop, int ranks, const std::string& options) {
  const LoadedConfig loaded = load_config(workshop.file("config.toml"), overrides_of(options));
  return set_up(loaded.config, ranks, {}, Purpose::plan);
}

struct ReplayErrors {
  double step = 0, idle = 0;  // parts of the step
};

// When the host's stream ends, and how long it is idle before.
struct HostTimes {
  double end = 0, idle = 0;
};
HostTimes times_of(const ReplayRow& row, const std::vector<ReplayTimes>& times) {
  HostTimes host;
  for (size_t i = 0; i < row.items.size(); ++i) {
    const ReplayItem& item = row.items[i];
    if (item.stream != row.host_stream || item.kind == ReplayItem::Kind::record ||
        item.kind == ReplayItem::Kind::wait)
      continue;
    host.end = std::max(host.end, times[i].end);
    host.idle -= times[i].end - times[i].begin;
  }
  host.idle += host.end;
  return host;
}

// The errors of the traced step that is replayed best: where another process takes the processor inside an
// exchange, ranks end it at other times, and a wrong replay errs in all steps.
ReplayErrors errors_of(const test::Workshop& workshop, int ranks, const std::string& options) {
  const test::Finished run = workshop.train(ranks, kModel + options);
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  const RunSetup setup = setup_of(workshop, ranks, kModel + options);
  const std::vector<test::TracedRank> traced = test::read_trace(workshop.file("runs/traced/trace.json"));
  ReplayErrors errors{.step = 1, .idle = 1};
  for (size_t index = 1; index < kSteps; ++index) {
    const test::TracedStep step = test::traced_step(setup, traced, index);
    const Replayed replayed = replay(step.rows);
    double measured = 0, played = 0, idle = 0;
    for (size_t r = 0; r < step.rows.size(); ++r) {
      const HostTimes was = times_of(step.rows[r], step.measured[r]),
                      is = times_of(step.rows[r], replayed.times[r]);
      measured = std::max(measured, was.end);
      played = std::max(played, is.end);
      idle = std::max(idle, std::abs(is.idle - was.idle));
    }
    const ReplayErrors of_step{.step = std::abs(played / measured - 1), .idle = idle / measured};
    if (std::max(of_step.step, of_step.idle) < std::max(errors.step, errors.idle)) errors = of_step;
  }
  MESSAGE(ranks, " ranks ", options, ": step off by ", 100 * errors.step, " %, idle time by ",
          100 * errors.idle, " % of the step");
  return errors;
}

void check_replay(const test::Workshop& workshop, int ranks, const std::string& options) {
  CAPTURE(ranks);
  CAPTURE(options);
  const ReplayErrors errors = errors_of(workshop, ranks, options);
  CHECK(errors.step < kMostError);
  CHECK(errors.idle < kMostError);
}

}  // namespace

TEST_CASE("a traced step, replayed with its own durations, takes the same time") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("traced_step");
  check_replay(workshop, 1, "");
  check_replay(workshop, 2, "");
  check_replay(workshop, 2, "--parallel.stages=2 --parallel.schedule=interleaved --parallel.chunks=2");
  check_replay(workshop, 2, "--parallel.offload=true");
}

TEST_CASE("a step traced in any strategy and schedule, replayed, takes the same time" *
          doctest::test_suite("nightly") * doctest::skip()) {
  const test::Workshop workshop("traced_steps");
  for (const int ranks : {2, 4})
    for (const char* strategy : {"no_shard", "zero1", "shard_grad_op", "full_shard"})
      check_replay(workshop, ranks, str("--parallel.strategy=", strategy));
  for (const char* schedule : {"1f1b", "gpipe", "sequential"})
    check_replay(workshop, 2, str("--parallel.stages=2 --parallel.schedule=", schedule));
  check_replay(workshop, 4, "--parallel.stages=4");
}

TEST_CASE("the trace of another run is an error") {
  const test::Workshop workshop("other_trace");
  const test::Finished run = workshop.train(1, str(kModel, "--train.steps=5 --run.trace=3:4"));
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  const std::vector<test::TracedRank> traced = test::read_trace(workshop.file("runs/traced/trace.json"));
  const RunSetup other = setup_of(workshop, 1, str(kModel, "--train.recompute=true"));
  CHECK(test::error_of([&] { test::traced_step(other, traced, 1); }).find("another run") !=
        std::string::npos);
}
