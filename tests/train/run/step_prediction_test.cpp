// The prediction of a run's own steps, from whole runs.

#include "train/run/step_prediction.h"

#include "runtime/text.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

namespace {

// A run of many steps, which ends early because its loss stays the same.
constexpr const char* kLong =
    "--train.steps=100000000 --optimizer.lr=1e-30 --optimizer.weight_decay=0 --train.eval_every=4 "
    "--train.stop_after_no_improvement=1 ";

StepPrediction predicted(World& world, MatrixPeak& peak) {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = "llama", .layers = 1, .hidden = 32, .heads = 2, .ffn = 64, .vocab = 64};
  c.data.seq_len = 16;
  c.data.packing = Packing::wrapped;
  c.train.steps = 1;
  c.train.total_batch_size = 1;
  c.optimizer.lr = 1e-3;
  return {set_up(c, 1),
          world,
          {.steps = 1'000'000, .flops = {.full = 1e6, .causal = 1e6}, .peak = peak, .bandwidth = {}}};
}

}  // namespace

TEST_CASE("a run ends with its predicted and its measured step time, and records both") {
  const test::Workshop workshop("prediction");
  for (const int ranks : {1, 2, 4}) {  // four share the processors of many machines
    if (ranks > 1 && !test::no_ranks_because().empty()) return test::skip(test::no_ranks_because());
    const test::Finished run = workshop.train(ranks, str(kLong, "--run.trace=2:3"));
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    const std::string line = test::after(run.output, "\ntime      ");
    CAPTURE(line);
    CHECK(test::missing_from(line, {"predicted ", ", measured ", " a step"}) == "");
    const std::vector<StepMetrics> steps = read_metrics(workshop.file("runs/default/metrics.jsonl"));
    REQUIRE(steps.size() == 8);
    CHECK(steps.front().predicted_seconds.value_or(0) > 0);
    for (size_t i = 1; i < steps.size(); ++i) CHECK(!steps[i].predicted_seconds);
    const std::string predicted = human_seconds(*steps.front().predicted_seconds);
    CHECK(line.find("predicted " + predicted) != std::string::npos);
    // The report has the number, and both timelines.
    const std::string page = test::read_file(workshop.file("runs/default/report.html"));
    CHECK(test::missing_from(page, {"predicted " + predicted, ">Timeline of a step<", ">predicted<"}) == "");
  }
}

TEST_CASE("a run of a few seconds is not predicted") {
  const test::Workshop workshop("no_prediction");
  const test::Finished run = workshop.train(1, "");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  CHECK(run.output.find("\ntime      ") == std::string::npos);
  CHECK(!read_metrics(workshop.file("runs/default/metrics.jsonl")).front().predicted_seconds);
}

TEST_CASE("the first step after a start, and steps without an update, are not measured") {
  World world;
  MatrixPeak peak{.measured = 1e9};
  StepPrediction prediction = predicted(world, peak);
  REQUIRE(prediction.seconds());
  prediction.add({.step_seconds = 100});
  CHECK(prediction.line().empty());
  prediction.add({.step_seconds = 50, .skipped = true});
  CHECK(prediction.line().empty());
  prediction.add({.step_seconds = 2});
  CHECK(prediction.line().ends_with(", measured 2.00 s a step\n"));
}

TEST_CASE(
    "the ops that a prediction times raise a peak that was measured on a busy machine, and lower none") {
  World world;
  MatrixPeak busy{.measured = 1}, quiet{.measured = 5e12};
  predicted(world, busy);
  predicted(world, quiet);
  CHECK(busy.measured > 1e6);  // any processor does more
  CHECK(quiet.measured == 5e12);
}
