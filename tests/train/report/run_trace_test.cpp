#include "train/report/run_trace.h"

#include <filesystem>

#include "comm/trace_file.h"
#include "runtime/json.h"
#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

const std::string kFolder = "run_trace_test";

// Runs steps with so many spans each; returns the names of the steps in trace.json.
std::vector<std::string> steps_traced(const TraceSteps& window, int64_t first, int64_t last, int spans,
                                      std::string* line) {
  fs::remove_all(kFolder);
  fs::create_directory(kFolder);
  World world;
  RunTrace traced(window, kFolder, last, world);
  const int compute = traced.trace()->add_row("compute");
  line->clear();
  for (int64_t step = first; step <= last; ++step) {
    traced.begin_step(step);
    const auto now = Trace::Clock::now();
    for (int i = 0; i < spans; ++i) traced.trace()->add_span(compute, "forward 1", now, now);
    traced.end_step(step);
    *line += traced.between_steps();
  }
  *line += traced.finish();
  std::vector<std::string> names;
  if (!fs::exists(kFolder + "/trace.json")) return names;
  const auto trace = nlohmann::json::parse(read_whole_file(kFolder + "/trace.json", kMostTraceBytes));
  for (const auto& event : trace["traceEvents"])
    if (const std::string name = event["name"]; name.starts_with("step ")) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a trace contains the steps of its window, and a picture of one of them") {
  std::string line;
  CHECK(steps_traced({.first = 3, .count = 2}, 1, 9, 5, &line) == Names{"step 3", "step 4"});
  CHECK(line == "trace     run_trace_test/trace.json: steps 3 to 4");
  CHECK(read_whole_file(kFolder + "/overlap.svg", 1 << 20).find(">step 4, ") != std::string::npos);
  CHECK(steps_traced({.count = 3}, 101, 109, 5, &line) == Names{"step 101", "step 102", "step 103"});
  CHECK(steps_traced({.first = 8, .count = 5}, 1, 9, 5, &line) == Names{"step 8", "step 9"});
}

TEST_CASE("a trace ends before a step that would exceed its size") {
  std::string line;
  const auto names = steps_traced({.count = 10}, 1, 20, 30'000, &line);
  CHECK(names == Names{"step 1", "step 2", "step 3"});
  CHECK(line == "trace     run_trace_test/trace.json: steps 1 to 3, as it is limited to 10 MB");
}

TEST_CASE("of a step that exceeds the size of a trace, the trace contains the beginning") {
  std::string line;
  CHECK(steps_traced({.count = 10}, 1, 3, 200'000, &line).empty());
  CHECK(
      line ==
      "trace     run_trace_test/trace.json: steps 1 to 1, without the last spans, as it is limited to 10 MB");
  CHECK(fs::file_size(kFolder + "/trace.json") > kMostTraceBytes / 2);
  CHECK(fs::exists(kFolder + "/overlap.svg"));
}

TEST_CASE("a run that ends before its trace begins is an error, or has no trace if it was stopped") {
  World world;
  CHECK(test::error_of([&] { RunTrace({{.first = 100}}, kFolder, 50, world); }) ==
        "run.trace begins with step 100, but the run has only 50");
  std::string line;
  CHECK(steps_traced({.first = 9, .count = 2}, 12, 13, 5, &line).empty());
  CHECK(line.empty());
}
