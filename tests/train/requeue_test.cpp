// Runs that are started with the same command until they finish, as a batch job that queues itself again
// does.

#include <csignal>
#include <filesystem>

#include "tests/job.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

namespace {

constexpr int kStopped = 75;
constexpr const char* kOptions = " --schedule.kind=constant --train.eval_every=1000 --log.every=1000";

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

}  // namespace

TEST_CASE("with --resume auto the same command begins, resumes and ends, and its exit code says which") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("requeued");
  int64_t step = 0;
  for (int time = 0; time < 2; ++time) {
    test::Job job("requeued", str("-np 2 @train config.toml --resume auto --train.steps=1000000", kOptions));
    const std::vector<pid_t> pids = job.ranks_after("memory    of rank 0", 2);
    job.signal_launcher(SIGUSR1);
    const test::Finished stopped = job.wait();
    CAPTURE(stopped.output);
    CHECK(stopped.exit_code == kStopped);
    CHECK((stopped.output.find("\nresumed   ") != std::string::npos) == (time > 0));
    const std::string saved = test::after(stopped.output, "saved     runs/default/step-");
    REQUIRE(!saved.empty());
    CHECK(hash_of(stopped).size() == 64);
    CHECK(std::stoll(saved) > step);
    step = std::stoll(saved);
  }
  const std::string to_the_end = str(kOptions, " --train.steps=", step + 5);
  const test::Finished last = workshop.train(2, "--resume auto" + to_the_end),
                       whole = workshop.train(1, "--run.dir=whole" + to_the_end);
  CHECK_MESSAGE(last.exit_code == 0, last.output);
  CHECK(hash_of(last) == hash_of(whole));
  CHECK(hash_of(last).size() == 64);
  const test::Finished again = workshop.train(1, "--resume auto" + to_the_end);
  CHECK_MESSAGE(again.exit_code == 0, again.output);
  CHECK(hash_of(again) == hash_of(whole));
}

TEST_CASE("--resume auto is refused where a stop would leave nothing to resume from") {
  const test::Workshop workshop("requeued_unsaved");
  const test::Finished run = workshop.train(1, "--resume auto --checkpoint.on_sigterm=false");
  CAPTURE(run.output);
  CHECK(run.exit_code == 1);
  CHECK(run.output.find("run.resume = \"auto\" resumes a run that a signal has stopped, but "
                        "checkpoint.on_sigterm = false saves no checkpoint then") != std::string::npos);
  CHECK(!std::filesystem::exists(workshop.file("runs")));
}
