// Early stopping, through the program train.

#include <cmath>
#include <filesystem>

#include "tests/test.h"
#include "tests/workshop.h"
#include "train/report/metrics.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

// Too high a learning rate, after the first steps: the loss rises again.
const std::string kOptions =
    "--train.eval_every=2 --optimizer.lr=0.1 --optimizer.grad_clip=0 --schedule.kind=constant "
    "--schedule.warmup_steps=5 --checkpoint.save_every=30min --checkpoint.best_every=auto "
    "--checkpoint.keep=1 ";
const std::string kStops = kOptions + "--train.stop_after_no_improvement=3 ";
constexpr const char* kStopped = "stopped   after step ";

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Stop {
  int64_t step = 0, lowest = 0;  // the last step, and that of the lowest evaluation loss
};

// What the metrics say the run must have done: each evaluation loss up to the lowest one, then three more.
Stop stop_in(const std::string& metrics) {
  Stop stop;
  double least = HUGE_VAL;
  for (const StepMetrics& m : read_metrics(metrics)) {
    if (m.eval_loss && *m.eval_loss < least) least = *m.eval_loss, stop.lowest = m.step;
    stop.step = m.step;
  }
  return stop;
}

}  // namespace

TEST_CASE(
    "a run without improvement stops at the same step on any number of ranks, and saves best and last") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("early_stop");
  std::string hash;
  for (const int ranks : {1, 2}) {
    const test::Finished run = workshop.train(ranks, kStops + "--train.steps=200 --run.dir=run");
    CAPTURE(run.output);
    REQUIRE(run.exit_code == 0);
    const Stop stop = stop_in(workshop.file("run/metrics.jsonl"));
    CHECK(stop.step == stop.lowest + 6);
    REQUIRE(stop.step < 200);
    CHECK(has(run.output, str(kStopped, stop.step,
                              " of 200: none of the last 3 evaluations has a lower loss than that of step ",
                              stop.lowest)));
    CHECK(fs::exists(workshop.file(str("run/step-", stop.step))));
    CHECK(fs::exists(workshop.file(str("run/step-", stop.lowest))));
    if (hash.empty()) {
      const test::Finished plain =
          workshop.train(1, kOptions + str("--run.dir=plain --train.steps=", stop.step));
      hash = hash_of(plain);
      REQUIRE_MESSAGE(hash.size() == 64, plain.output);
      CHECK(!has(plain.output, kStopped));
    }
    CHECK(hash_of(run) == hash);
  }
}

TEST_CASE(
    "a resumed run continues the count, and one that has stopped early continues if the count is raised") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("early_stop_resumed");
  const test::Finished whole = workshop.train(1, kStops + "--train.steps=200 --run.dir=whole");
  const Stop stop = stop_in(workshop.file("whole/metrics.jsonl"));
  REQUIRE_MESSAGE(has(whole.output, str(kStopped, stop.step)), whole.output);

  const test::Finished first = workshop.train(1, kStops + str("--run.dir=run --train.steps=", stop.step - 2));
  REQUIRE_MESSAGE(first.exit_code == 0, first.output);
  CHECK(!has(first.output, kStopped));
  const std::string resumed = kStops + "--run.dir=run --train.steps=200 --resume auto";
  const test::Finished second = workshop.train(2, resumed), again = workshop.train(1, resumed);
  for (const test::Finished& run : {second, again}) {
    CAPTURE(run.output);
    CHECK(run.exit_code == 0);
    CHECK(has(run.output, str(kStopped, stop.step, " of 200: none of the last 3 evaluations ")));
    CHECK(hash_of(run) == hash_of(whole));
  }
  const test::Finished more = workshop.train(1, resumed + " --train.stop_after_no_improvement=5");
  CHECK_MESSAGE(has(more.output, str(kStopped, stop.step + 4, " of 200: none of the last 5 ")), more.output);
  CHECK(has(more.output, "changed since step "));
}

TEST_CASE("early stopping is refused without evaluations") {
  const test::Workshop workshop("early_stop_refused");
  const test::Finished run =
      workshop.train(1, "--train.stop_after_no_improvement=2 --train.eval_every=0 --data.eval=\"''\"");
  CHECK(run.exit_code == 1);
  CHECK_MESSAGE(has(run.output,
                    "train.stop_after_no_improvement = 2 counts evaluations, but data.eval names no file to "
                    "evaluate on: set it and train.eval_every, or remove the key"),
                run.output);
}
