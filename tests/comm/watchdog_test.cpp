#include "comm/watchdog.h"

#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "build_config.h"
#include "comm/world.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr std::chrono::seconds kLimit{1};
constexpr std::chrono::milliseconds kBeyond{1600}, kMoment{100},
    kUnanswered{3000};  // how long a rank waits for an answer

std::string silent_rank() { return "rank 1 does not answer"; }
std::string no_answer() {
  for (;;) pause();
}

// A rank that is in one collective until its pipe is closed; 0 when its watchdog let it come to that.
pid_t start_rank(const int (&pipe)[2], const std::vector<Watchdog::Peer>& peers = {},
                 std::string silent() = silent_rank) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  close(pipe[1]);
  std::atomic<Parting> parting{Parting::not_yet};
  {
    Watchdog watchdog(0, peers, parting, silent);
    watchdog.limit(kLimit);
    const InFlight flight(&watchdog, {"host", "barrier", "a test", 0, DType::i32});
    char end;
    while (read(pipe[0], &end, 1) < 0) continue;
  }
  _exit(0);
}

// The thread sanitizer ends a forked process that starts threads.
bool can_fork() { return std::string(kSanitizer) != "thread"; }
constexpr const char* kNoFork = "the thread sanitizer does not allow threads after a fork";

}  // namespace

TEST_CASE("the time in which a rank is suspended does not count as waiting for others") {
  if (!can_fork()) return test::skip(kNoFork);
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t rank = start_rank(pipe);
  close(pipe[0]);
  std::this_thread::sleep_for(kMoment);
  kill(rank, SIGSTOP);
  std::this_thread::sleep_for(kBeyond);
  kill(rank, SIGCONT);
  std::this_thread::sleep_for(kMoment);  // its watchdog has looked: its wait was over before
  close(pipe[1]);
  int status = 0;
  REQUIRE(waitpid(rank, &status, 0) == rank);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a collective that takes longer than the limit ends the rank") {
  if (!can_fork()) return test::skip(kNoFork);
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t rank = start_rank(pipe);
  close(pipe[0]);
  int status = 0;
  REQUIRE(waitpid(rank, &status, 0) == rank);
  close(pipe[1]);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
}

// It would be ended by the launcher, which ends all ranks soon after the first.
TEST_CASE("a rank does not ask who is silent when another rank has said it") {
  if (!can_fork()) return test::skip(kNoFork);
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const std::atomic<Parting> other{Parting::gave_up};
  const auto started = std::chrono::steady_clock::now();
  const pid_t rank = start_rank(pipe, {{.rank = 2, .pid = getpid(), .parting = &other}}, no_answer);
  close(pipe[0]);
  int status = 0;
  REQUIRE(waitpid(rank, &status, 0) == rank);
  close(pipe[1]);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
  CHECK(std::chrono::steady_clock::now() - started < kLimit + kUnanswered);
}

TEST_CASE("an error names the ranks that do not answer, and says whether they are whole hosts") {
  const std::vector<std::string> hosts{"n1", "n1", "n2", "n2", "n3"};
  CHECK(describe_silent({}, hosts) == "all ranks answer");
  CHECK(describe_silent({1}, hosts) == "rank 1 on n1 does not answer: stuck, or slower than that");
  CHECK(describe_silent({2, 3}, hosts) == "ranks 2-3 on n2 do not answer: cut off, down or stuck");
  CHECK(describe_silent({2, 3, 4}, hosts) == "ranks 2-4 on n2, n3 do not answer: cut off, down or stuck");
  CHECK(describe_silent({1, 2, 3}, hosts) == "ranks 1-3 on n1, n2 do not answer: stuck, or slower than that");
}
