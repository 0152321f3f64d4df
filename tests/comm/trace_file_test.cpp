// trace.json of a run of several ranks.

#include "comm/trace_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "runtime/json.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;
namespace fs = std::filesystem;

TEST_CASE("one trace.json has every rank's streams, and collectives overlap in it") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("merged_trace");
  constexpr int kRanks = 3, kSteps = 4;
  const test::Finished run = workshop.train(
      kRanks, str("--run.trace=true --train.total_batch_size=6 --train.eval_every=4 --train.steps=", kSteps));
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  CHECK(!fs::exists(workshop.file("runs/default/trace.rank1.json")));
  const auto trace = nlohmann::json::parse(test::read_file(workshop.file("runs/default/trace.json")));

  std::map<std::pair<int, int>, std::string> rows;
  std::set<std::string> processes;
  std::map<std::string, int64_t> spans;  // "compute forward 0"
  std::map<std::string, std::vector<std::pair<double, double>>> steps;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string name = event.at("name");
    if (name == "process_name") processes.insert(event.at("args").at("name").get<std::string>());
    if (name == "thread_name") rows[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    const std::string row = rows.at({event.at("pid"), event.at("tid")});
    ++spans[row + ' ' + name];
    const double begin = event.at("ts"), duration = event.at("dur");
    if (row == "steps") steps[name].push_back({begin, begin + duration});
  }
  CHECK(processes == std::set<std::string>{"rank 0", "rank 1", "rank 2"});
  CHECK(rows.size() == kRanks * 4);
  constexpr int64_t kMicroSteps = 2;
  CHECK(spans["compute backward 3"] == kRanks * kSteps * kMicroSteps);
  CHECK(spans["compute forward 1"] == kRanks * kSteps * kMicroSteps);
  CHECK(spans["reduce all_to_all model.layers.1"] == kRanks * kSteps * kMicroSteps);
  CHECK(spans["gather all_gather model.layers.0"] > kRanks * kSteps * kMicroSteps);  // evaluations as well
  CHECK(spans["compute update"] == kRanks * kSteps);
  CHECK(steps.size() == kSteps);
  for (const auto& [name, of_ranks] : steps) {
    CAPTURE(name);
    REQUIRE(of_ranks.size() == kRanks);
    double last_begin = 0, first_end = 1e300;
    for (const auto& [begin, end] : of_ranks)
      last_begin = std::max(last_begin, begin), first_end = std::min(first_end, end);
    // All wait for all others in the norm's exchange.
    CHECK(last_begin < first_end);
  }
  CHECK(test::read_file(workshop.file("runs/default/overlap.svg")).find("on 3 ranks") != std::string::npos);
}

TEST_CASE("clock offsets are accurate to within the stated error, however large they are") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  for (const int ranks : {1, 2, 4}) {
    const test::Finished run = test::run_command(test::launcher(ranks) + "@rank_matrix --clocks");
    CHECK_MESSAGE(run.exit_code == 0, run.output);
    CHECK(run.output.find(str("clocks hold on ", ranks, " ranks")) != std::string::npos);
  }
}

TEST_CASE("a trace that cannot be written is an error that names the file") {
  World world;
  CHECK(test::error_of([&] { write_trace("/dev/null/trace.json", Trace(), world, {}); }) ==
        "/dev/null/trace.json: cannot write: Not a directory");
}
