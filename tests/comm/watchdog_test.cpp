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
constexpr std::chrono::milliseconds kBeyond{1600}, kMoment{100};

std::string silent_rank() { return "rank 1 does not answer"; }

// Ends a rank that waits for the answer.
constexpr int kWaited = 2;
std::string late_answer() {
  std::this_thread::sleep_for(kBeyond);
  _exit(kWaited);
}

// A rank that is in one collective until its pipe is closed; 0 when its watchdog let it come to that.
pid_t start_rank(const int (&pipe)[2], const std::vector<Watchdog::Peer>& peers, std::string silent()) {
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

// -1: not by itself.
int exit_code_of(pid_t rank) {
  int status = 0;
  REQUIRE(waitpid(rank, &status, 0) == rank);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Of a rank whose collective does not end.
int exit_code_alone(const std::vector<Watchdog::Peer>& peers, std::string silent()) {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t rank = start_rank(pipe, peers, silent);
  close(pipe[0]);
  const int code = exit_code_of(rank);
  close(pipe[1]);
  return code;
}

// The thread sanitizer ends a forked process that starts threads.
bool can_fork() { return std::string(kSanitizer) != "thread"; }
constexpr const char* kNoFork = "the thread sanitizer does not allow threads after a fork";

}  // namespace

TEST_CASE("the time in which a rank is suspended does not count as waiting for others") {
  if (!can_fork()) return test::skip(kNoFork);
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t rank = start_rank(pipe, {}, silent_rank);
  close(pipe[0]);
  std::this_thread::sleep_for(kMoment);
  kill(rank, SIGSTOP);
  std::this_thread::sleep_for(kBeyond);
  kill(rank, SIGCONT);
  std::this_thread::sleep_for(kMoment);  // its watchdog has looked: its wait was over before
  close(pipe[1]);
  CHECK(exit_code_of(rank) == 0);
}

TEST_CASE("a collective that takes longer than the limit ends the rank") {
  if (!can_fork()) return test::skip(kNoFork);
  CHECK(exit_code_alone({}, silent_rank) == kLostRanks);
}

// The launcher ends all ranks soon after the first.
TEST_CASE("a rank does not wait to hear who is silent when another rank has said it") {
  if (!can_fork()) return test::skip(kNoFork);
  const std::atomic<Parting> other{Parting::gave_up};
  CHECK(exit_code_alone({}, late_answer) == kWaited);
  CHECK(exit_code_alone({{.rank = 2, .pid = getpid(), .parting = &other}}, late_answer) == kLostRanks);
}

TEST_CASE("an error names the ranks that do not answer, and says whether they are whole hosts") {
  const std::vector<std::string> hosts{"n1", "n1", "n2", "n2", "n3"};
  CHECK(describe_silent({}, hosts) == "all ranks answer");
  CHECK(describe_silent({1}, hosts) == "rank 1 on n1 does not answer: stuck, or slower than that");
  CHECK(describe_silent({2, 3}, hosts) == "ranks 2-3 on n2 do not answer: cut off, down or stuck");
  CHECK(describe_silent({2, 3, 4}, hosts) == "ranks 2-4 on n2, n3 do not answer: cut off, down or stuck");
  CHECK(describe_silent({1, 2, 3}, hosts) == "ranks 1-3 on n1, n2 do not answer: stuck, or slower than that");
}
