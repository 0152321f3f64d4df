#include "train/run/step_prediction.h"

#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "train/plan/saved_plan.h"
#include "train/report/metrics.h"

using namespace flatshard;

namespace {

const std::string kFolder = "runs/default", kOnCpu = "--run.device=cpu ";

std::optional<double> recorded(const test::Workshop& workshop) {
  return read_metrics(workshop.file(kFolder + "/metrics.jsonl")).front().predicted_seconds;
}

bool compares(const test::Finished& run) { return run.output.find("\ntime      ") != std::string::npos; }

}  // namespace

TEST_CASE("a run compares its steps with the plan that was saved for it, and records both") {
  const test::Workshop workshop("prediction");
  for (const int ranks : {1, 2, 4}) {  // four share the processors of many machines
    if (ranks > 1 && !test::no_ranks_because().empty()) return test::skip(test::no_ranks_because());
    CAPTURE(ranks);
    const test::Finished planned = workshop.train(ranks, kOnCpu + "--plan --save");
    REQUIRE_MESSAGE(planned.exit_code == 0, planned.output);
    const SavedPlan plan = read_plan(workshop.file(kFolder + "/plan.json"));
    const std::string predicted = "predicted " + human_seconds(plan.seconds);
    const test::Finished run = workshop.train(ranks, kOnCpu + "--run.trace=2:3");
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    const std::string line = test::after(run.output, "\ntime      ");
    CHECK(test::missing_from(line, {predicted, ", measured ", " a step"}) == "");
    const std::vector<StepMetrics> steps = read_metrics(workshop.file(kFolder + "/metrics.jsonl"));
    REQUIRE(steps.size() == 6);
    CHECK(steps.front().predicted_seconds == plan.seconds);
    for (size_t i = 1; i < steps.size(); ++i) CHECK(!steps[i].predicted_seconds);
    // The report has the number, and both timelines.
    const std::string page = test::read_file(workshop.file(kFolder + "/report.html"));
    CHECK(test::missing_from(page, {predicted, ">Timeline of a step<", ">predicted<"}) == "");
  }
}

TEST_CASE("without a plan, or with the plan of another run, nothing is predicted") {
  const test::Workshop workshop("no_prediction");
  const test::Finished alone = workshop.train(1, kOnCpu);
  REQUIRE_MESSAGE(alone.exit_code == 0, alone.output);
  CHECK(!compares(alone));
  CHECK(!recorded(workshop));
  REQUIRE(workshop.train(1, kOnCpu + "--plan --save").exit_code == 0);
  const test::Finished other = workshop.train(1, kOnCpu + "--train.recompute=true");
  REQUIRE_MESSAGE(other.exit_code == 0, other.output);
  CHECK(test::missing_from(other.output, {"plan.json", "train.recompute", "false", "true"}) == "");
  CHECK(!compares(other));
  CHECK(!recorded(workshop));
}

TEST_CASE("a plan that cannot be read does not end the run") {
  const test::Workshop workshop("damaged_plan");
  REQUIRE(workshop.train(1, kOnCpu + "--plan --save").exit_code == 0);
  write_whole_file(workshop.file(kFolder + "/plan.json"), "{");
  const test::Finished run = workshop.train(1, kOnCpu);
  CHECK_MESSAGE(run.exit_code == 0, run.output);
  CHECK(test::missing_from(run.output, {"warning: ", "plan.json"}) == "");
  CHECK(!compares(run));
}

TEST_CASE("the first step after a start, and steps without an update, are not measured") {
  StepPrediction prediction(1.5);
  prediction.add({.step_seconds = 100});
  CHECK(prediction.line().empty());
  prediction.add({.step_seconds = 50, .skipped = true});
  CHECK(prediction.line().empty());
  prediction.add({.step_seconds = 2});
  CHECK(prediction.line() == "time      predicted 1.50 s, measured 2.00 s a step\n");
}
