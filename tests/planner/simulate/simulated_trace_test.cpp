#include <algorithm>
#include <filesystem>

#include "comm/trace_file.h"
#include "planner/simulate/simulated_step.h"
#include "tests/checkpoint_content.h"
#include "tests/planner/simulate/traced_step.h"
#include "tests/test.h"
#include "train/report/trace_picture.h"

using namespace flatshard;

namespace {

RunSetup small_setup(int ranks, int64_t stages) {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = "llama", .layers = 4, .hidden = 256, .heads = 4, .ffn = 512, .vocab = 512};
  c.data.seq_len = 128;
  c.train.steps = 1;
  c.train.total_batch_size = 16;
  c.optimizer.lr = 1e-3;
  c.parallel.stages = stages;
  return set_up(c, ranks, {}, Purpose::plan);
}

const Cluster& h100() {
  static const Cluster cluster = usual_cluster(gpu_model("h100-80gb"));
  return cluster;
}

std::vector<const Trace*> pointers(const StepTimeline& traced) {
  std::vector<const Trace*> traces;
  for (const auto& trace : traced.ranks) traces.push_back(trace.get());
  return traces;
}

const test::TracedStream& stream_of(const test::TracedRank& rank, const std::string& name) {
  return *std::find_if(rank.streams.begin(), rank.streams.end(),
                       [&](const test::TracedStream& s) { return s.name == name; });
}

}  // namespace

TEST_CASE("a simulated step is written as the trace of a run, from which its own time can be read") {
  std::filesystem::create_directories("simulated_trace");
  for (const int64_t stages : {1, 2}) {
    const RunSetup setup = small_setup(4, stages);
    const StepTimeline traced = simulated_trace(setup, h100());
    REQUIRE(traced.ranks.size() == static_cast<size_t>(stages));
    CHECK(write_trace("simulated_trace/trace.json", pointers(traced)));
    const std::vector<test::TracedRank> ranks = test::read_trace("simulated_trace/trace.json");
    REQUIRE(ranks.size() == static_cast<size_t>(stages));
    const double seconds = simulate_step(setup, h100()).seconds;
    for (const test::TracedRank& rank : ranks) {
      REQUIRE(rank.steps.size() == 1);
      constexpr double kDigits = 2e-9;  // of a trace
      CHECK(std::abs(rank.steps.front().end - seconds) < kDigits + 0.02 * seconds);
      for (const test::TracedStream& stream : rank.streams)
        for (size_t i = 1; i < stream.spans.size(); ++i)  // one after another
          CHECK(stream.spans[i].begin >= stream.spans[i - 1].end - kDigits);
    }
    CHECK(stream_of(ranks.front(), "gather").spans.back().name.starts_with("all_gather"));
    CHECK(test::read_file("simulated_trace/trace.json").find("\"wait\"") != std::string::npos);
  }
}

TEST_CASE("a picture of a simulated step has its passes, and says how much of a long step it shows") {
  std::filesystem::create_directories("simulated_trace");
  const StepTimeline traced = simulated_trace(small_setup(1, 1), h100());
  write_trace_picture("simulated_trace/overlap.svg", pointers(traced), traced.what);
  const std::string svg = test::read_file("simulated_trace/overlap.svg");
  CHECK(test::missing_from(svg, {"simulated, of one rank, 8 of 16 micro-steps", "<title>forward 0,"}) == "");
  CHECK(svg.find("<title>backward 3,") != std::string::npos);
  CHECK(svg.find("<title>update,") != std::string::npos);
}
