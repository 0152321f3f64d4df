// Jobs of which a rank dies or hangs: the program train under mpirun, with ranks killed or suspended.

#include <algorithm>
#include <csignal>
#include <thread>
#include <unistd.h>

#include "runtime/rng.h"
#include "tests/checkpoint_content.h"
#include "tests/job.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

namespace {

// Runs for longer than any test, and evaluates and hashes too, so that a fault may hit any of these.
constexpr const char* kEndless =
    " --train.steps=1000000 --log.every=1000000 --train.eval_every=4 --run.hash_every=7";
constexpr const char* kStarted = "memory    of rank 0";

bool says(const std::string& output, int rank, const std::string& text) {
  const std::string begin = str("train: [rank ", rank, "] ");
  for (size_t at = output.find(begin); at != std::string::npos; at = output.find(begin, at + 1))
    if (output.substr(at, output.find('\n', at) - at).find(text) != std::string::npos) return true;
  return false;
}

void check_gone(const std::vector<pid_t>& ranks) {
  for (const pid_t pid : ranks) CHECK(test::eventually([&] { return test::is_gone(pid); }));
}

// Kills a random rank at a random moment, so many times.
void kill_ranks(int times) {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("killed");
  const RandomStream random(1, "kills");
  constexpr uint64_t kMilliseconds = 300;
  for (int time = 0; time < times; ++time) {
    const int ranks = time % 4 == 0 ? 4 : 2;
    test::Job job("killed", str("-np ", ranks, " @train config.toml", kEndless));
    // From here on a rank finishes its step at SIGTERM; the peak is not yet measured.
    const std::vector<pid_t> pids = job.ranks_after("", ranks);
    for (const pid_t pid : pids) REQUIRE(test::eventually([&] { return test::handles(pid, SIGTERM); }));
    const size_t victim = random.bits(2 * time) % pids.size();
    std::this_thread::sleep_for(std::chrono::milliseconds(random.bits(2 * time + 1) % kMilliseconds));
    kill(pids[victim], SIGKILL);
    const test::Finished run = job.wait();
    CAPTURE(time);
    CAPTURE(victim);
    CAPTURE(run.output);
    CHECK(run.exit_code != 0);
    CHECK(run.exit_code != 124);
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != static_cast<int>(victim))
        CHECK(says(run.output, rank, str("rank ", victim, " (pid ", pids[victim], ") ended unexpectedly ")));
    check_gone(pids);
  }
}

}  // namespace

TEST_CASE("a killed rank ends all others, and each reports what it waited for") { kill_ranks(5); }

TEST_CASE("a rank killed at any of many moments ends all others" * doctest::test_suite("nightly") *
          doctest::skip()) {
  kill_ranks(100);
}

TEST_CASE("a stalled rank ends the run after parallel.timeout_seconds") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("still");
  test::Job job("still", str("-np 4 @train config.toml --parallel.timeout_seconds=2", kEndless));
  const std::vector<pid_t> pids = job.ranks_after(kStarted, 4);
  kill(pids[1], SIGSTOP);
  const test::Finished run = job.wait();
  CAPTURE(run.output);
  CHECK(run.exit_code != 0);
  CHECK(run.exit_code != 124);
  CHECK(test::after(run.output, "parallel.timeout_seconds = 2 (raise it if this may take longer); rank 1 on ")
            .ends_with(" does not answer: stuck, or slower than that"));
  bool first = false;
  for (const int rank : {0, 2, 3}) {
    const bool waited =
        says(run.output, rank, "s in step ") && says(run.output, rank, "parallel.timeout_seconds = 2");
    CHECK((waited || says(run.output, rank, ") gave up in step ")));
    first = first || waited;
  }
  CHECK(first);
  check_gone(pids);
}

TEST_CASE("a rank that never joins ends the run after parallel.timeout_seconds") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("absent");
  test::Job job("absent",
                "-np 1 @train config.toml --parallel.timeout_seconds=2 : -np 1 sh -c 'kill -STOP $$'");
  const test::Finished run = job.wait();
  CAPTURE(run.output);
  CHECK(run.exit_code != 0);
  CHECK(run.exit_code != 124);
  CHECK(says(run.output, 0, "more than parallel.timeout_seconds = 2"));
  CHECK(says(run.output, 0, "a rank has not come"));
}

TEST_CASE("run.log says once why a run failed that lost a rank") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("noted");
  for (const size_t victim : {0u, 1u, 2u}) {
    const std::string folder = str("runs/", victim);
    test::Job job("noted",
                  str("-np 3 @train config.toml --train.total_batch_size=6 --run.dir=", folder, kEndless));
    const std::vector<pid_t> pids = job.ranks_after(kStarted, 3);
    REQUIRE(
        test::eventually([&] { return access(workshop.file(folder + "/step1.txt").c_str(), F_OK) == 0; }));
    kill(pids[victim], SIGKILL);
    const test::Finished run = job.wait();
    const std::string log = test::read_file(workshop.file(folder + "/run.log"));
    CAPTURE(victim);
    CAPTURE(run.output);
    CAPTURE(log);
    const std::string lost = str("rank ", victim, " (pid ", pids[victim], ") ended unexpectedly in step ");
    const size_t note = log.find("\nfailed: [rank ");
    REQUIRE(note != std::string::npos);
    CHECK(log.find("failed: ", note + 2) == std::string::npos);
    CHECK(log.find(lost, note) != std::string::npos);
    CHECK(log.find('\n', note + 1) == log.size() - 1);
  }
}

TEST_CASE("a signal stops all ranks after the same step, and the run finishes normally") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("terminated");
  const std::string options = " --schedule.kind=constant --run.hash_every=0";
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    test::Job job("terminated", str("-np 4 @train config.toml --run.dir=runs/", signal, kEndless, options));
    const std::vector<pid_t> pids = job.ranks_after(kStarted, 4);
    if (signal == SIGUSR1)
      job.signal_launcher(signal);  // mpirun passes it on to every rank
    else
      kill(pids[2], signal);
    const test::Finished run = job.wait();
    CAPTURE(run.output);
    CHECK(run.exit_code == 0);
    const char* sent = signal == SIGTERM  ? ": rank 2 received SIGTERM"
                       : signal == SIGINT ? ": rank 2 received SIGINT"
                                          : " received SIGUSR1";
    CHECK(test::after(run.output, "\nstopped   after step ").find(sent) != std::string::npos);
    std::string step = test::after(run.output, "stopped   after step ");
    step = step.substr(0, step.find(" of "));
    step.erase(std::remove(step.begin(), step.end(), ','), step.end());
    REQUIRE(!step.empty());
    // The weights are those of a run of so many steps.
    const test::Finished same = workshop.train(2, options + " --train.eval_every=1000 --train.steps=" + step);
    CHECK(test::after(run.output, "\nweights ").size() == 64);
    CHECK(test::after(same.output, "\nweights ") == test::after(run.output, "\nweights "));
    check_gone(pids);
  }
}

TEST_CASE("a second SIGTERM ends a run whose step is stuck") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("twice");
  test::Job job("twice", str("-np 2 @train config.toml", kEndless));
  const std::vector<pid_t> pids = job.ranks_after(kStarted, 2);
  REQUIRE(test::eventually([&] { return test::handles(pids[0], SIGTERM); }));
  kill(pids[1], SIGSTOP);
  kill(pids[0], SIGTERM);
  REQUIRE(
      test::eventually([&] { return job.output().find("stopping after this step") != std::string::npos; }));
  CHECK(!test::is_gone(pids[0]));
  kill(pids[0], SIGTERM);
  const test::Finished run = job.wait();
  CAPTURE(run.output);
  CHECK(run.exit_code != 0);
  CHECK(run.exit_code != 124);
  check_gone(pids);
}

TEST_CASE("a run of one process stops at SIGTERM") {
  const test::Workshop workshop("alone");
  const test::Finished run = test::run_command(
      str("cd alone; @train config.toml", kEndless, " > out.txt & until grep -q '", kStarted,
          "' out.txt; do sleep 0.05; done; kill -TERM $!; wait $!; code=$?; cat out.txt; exit $code"));
  CAPTURE(run.output);
  CHECK(run.exit_code == 0);
  CHECK(run.output.find(" of 1,000,000: rank 0 received SIGTERM") != std::string::npos);
  CHECK(test::after(run.output, "\nweights ").size() == 64);
}
