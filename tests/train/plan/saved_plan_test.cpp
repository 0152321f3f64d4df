#include "train/plan/saved_plan.h"

#include <filesystem>

#include "runtime/parallel.h"
#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

const std::string kFolder = "saved_plan_test/run";

Config config_of(DeviceChoice device) {
  Config c;
  c.run.device = device;
  c.run.dir = kFolder;
  c.model = {.family = "llama", .layers = 1, .hidden = 16, .heads = 2, .ffn = 24, .vocab = 31};
  c.data.seq_len = 8;
  c.train.steps = 1;
  c.train.total_batch_size = 8;
  c.optimizer.lr = 1e-3;
  return c;
}

RunSetup setup_of(const Config& config, int ranks = 2) { return set_up(config, ranks, {}, Purpose::plan); }

SavedPlan plan_for(const RunSetup& setup) {
  SavedPlan plan{.seconds = 0.1,
                 .machines = "h100-80gb",
                 .memory = {{"scratch", 300, "of ops"}, {"sum", 300, ""}},
                 .settings = planned_settings(setup),
                 .timeline = {.ranks = {}, .what = "simulated, of one rank"}};
  Trace& trace = *plan.timeline.ranks.emplace_back(std::make_unique<Trace>(3));
  const auto at = [&](int us) { return trace.start() + std::chrono::microseconds(us); };
  const int compute = trace.add_row("compute"), gather = trace.add_row("gather");
  trace.add_row("reduce");  // without a span
  trace.add_span(compute, "forward \"0\"", at(1), at(4));
  trace.add_span(gather, "all_gather <0>", at(0), at(2));
  trace.add_span(compute, "backward 0", at(4), at(9));
  trace.add_span(trace.add_row("steps"), "step 1", at(0), at(9));
  return plan;
}

// Row, name, begin and length of every span.
std::vector<std::string> spans_of(const Trace& trace) {
  std::vector<std::string> spans;
  trace.each_span([&](const std::string& row, const std::string& name, auto begin, auto end) {
    spans.push_back(str(row, ' ', name, ' ', (begin - trace.start()).count(), ' ', (end - begin).count()));
  });
  std::sort(spans.begin(), spans.end());
  return spans;
}

}  // namespace

TEST_CASE("a plan is read as it was saved, into a folder that did not exist") {
  fs::remove_all("saved_plan_test");
  const SavedPlan saved = plan_for(setup_of(config_of(DeviceChoice::cpu)));
  save_plan(kFolder, saved);
  const SavedPlan read = read_plan(plan_path(kFolder));
  CHECK(read.seconds == saved.seconds);
  CHECK(read.machines == saved.machines);
  REQUIRE(read.memory.size() == 2);
  CHECK(read.memory[0].name == "scratch");
  CHECK(read.memory[0].bytes == 300);
  CHECK(read.memory[0].what == "of ops");
  CHECK(read.settings == saved.settings);
  CHECK(read.timeline.what == saved.timeline.what);
  REQUIRE(read.timeline.ranks.size() == 1);
  const Trace &trace = *read.timeline.ranks.front(), &original = *saved.timeline.ranks.front();
  CHECK(trace.process() == 3);
  CHECK(trace.rows() == original.rows());
  CHECK(spans_of(trace) == spans_of(original));
  save_plan(kFolder, saved);  // again, in place of the first
}

TEST_CASE("a plan is that of a run with the same settings, whatever else differs") {
  fs::remove_all("saved_plan_test");
  const Config config = config_of(DeviceChoice::cpu);
  CHECK(!plan_of_run(setup_of(config), kFolder));
  save_plan(kFolder, plan_for(setup_of(config)));
  CHECK(plan_of_run(setup_of(config), kFolder));
  Config same = config;
  same.run.seed = 5, same.optimizer.lr = 1, same.train.steps = 7, same.parallel.timeout_seconds = 1,
  same.log.every = 3;
  CHECK(plan_of_run(setup_of(same), kFolder));
  for (const auto& [what, change] : std::initializer_list<std::pair<const char*, void (*)(Config&)>>{
           {"model", [](Config& c) { c.model.layers = 2; }},
           {"length", [](Config& c) { c.data.seq_len = 16; }},
           {"batch", [](Config& c) { c.train.total_batch_size = 16; }},
           {"optimizer", [](Config& c) { c.optimizer.kind = *optimizer_named("adamw8bit"); }},
           {"precision", [](Config& c) { c.precision.compute = Precision::fp32; }},
           {"adapters", [](Config& c) { c.lora.rank = 2; }},
           {"strategy", [](Config& c) { c.parallel.strategy = Strategy::zero1; }},
           {"device", [](Config& c) { c.run.device = DeviceChoice::cuda; }}}) {
    CAPTURE(what);
    Config other = config;
    change(other);
    CHECK(!plan_of_run(setup_of(other), kFolder));
  }
  CHECK(!plan_of_run(setup_of(config, 4), kFolder));
}

TEST_CASE("threads count on CPUs only, for a plan for GPUs is made on any machine") {
  const int threads = thread_count();
  const auto settings = [](DeviceChoice device, int count) {
    set_thread_count(count);
    return planned_settings(setup_of(config_of(device)));
  };
  CHECK(settings(DeviceChoice::cpu, 1) != settings(DeviceChoice::cpu, 2));
  CHECK(settings(DeviceChoice::cuda, 1) == settings(DeviceChoice::cuda, 2));
  set_thread_count(threads);
}

TEST_CASE("a file that is no plan is refused by its name and defect, and is not replaced") {
  fs::remove_all("saved_plan_test");
  const SavedPlan plan = plan_for(setup_of(config_of(DeviceChoice::cpu)));
  save_plan(kFolder, plan);
  const std::string path = plan_path(kFolder), text = read_whole_file(path, 1 << 20);
  const auto refused = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    REQUIRE(at != text.npos);
    write_whole_file(path, text.substr(0, at) + to + text.substr(at + from.size()));
    return test::error_of([&] { read_plan(path); });
  };
  CHECK(refused("0.1", "2.5").empty());
  for (const char* seconds : {"0", "-1", "1e10", "\"1\"", "null"})
    CHECK(test::missing_from(refused("0.1", seconds), {path}) == "");
  CHECK(test::missing_from(refused("\"seconds\"", "\"minutes\""), {path, "seconds"}) == "");
  CHECK(test::missing_from(refused("step 1", "stop 1"), {path, "no step"}) == "");
  CHECK(test::missing_from(refused("9000", "-9000"), {path, "-9000", "whole number from 0"}) == "");
  CHECK(test::missing_from(refused("9000", "1e30"), {path, "whole number from 0"}) == "");
  CHECK(test::missing_from(refused("300", "0.5"), {path, "0.5", "whole number"}) == "");
  CHECK(test::missing_from(refused("{", ""), {path}) == "");
  write_whole_file(path, "a note");
  CHECK(test::missing_from(test::error_of([&] { save_plan(kFolder, plan); }), {path}) == "");
  CHECK(read_whole_file(path, 100) == "a note");
}
