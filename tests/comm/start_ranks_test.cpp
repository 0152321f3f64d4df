#include "comm/start_ranks.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/checkpoint_content.h"
#include "tests/job.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// A launcher that, until it receives SIGUSR1 and has written that down, only waits. It ignores its arguments.
constexpr const char* kWaits =
    "sh -c 'trap \"echo usr1 >> signals\" USR1; trap \"\" TERM; echo > ready; while [ ! -s signals ]; do "
    "sleep "
    "0.01; done; exit 7'";

// Sends these signals to a process that has started ranks, once they are ready, and returns its exit code. It
// ignores `ignored`. The file "sent" appears after the last one.
int exit_code_after(const std::string& launcher, const std::vector<int>& signals,
                    const std::vector<int>& ignored = {}) {
  for (const char* file : {"ready", "signals", "sent"}) std::remove(file);
  const pid_t pid = fork();
  if (pid == 0) {
    const test::DefaultSignals defaults;
    for (const int signal : ignored) std::signal(signal, SIG_IGN);
    _exit(start_ranks({.command = launcher, .options = "--launch it"}, {"a b", "$c"}).code);
  }
  test::eventually([] { return access("ready", F_OK) == 0; });
  for (const int signal : signals) {
    kill(pid, signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::ofstream("sent") << '\n';
  int status = 0;
  if (!test::eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; })) {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("a launcher runs this program with the arguments, in a shell, and its exit code is returned") {
  CHECK(exit_code_after(
            "sh -c 'echo > ready; printf \"%s,\" \"$@\" \"$FLATSHARD_LAUNCH\" > launched; exit 3' -", {}) ==
        3);
  const std::string words = test::read_file("launched"), program = words.substr(0, words.find(','));
  CHECK(program.ends_with("flatshard_tests"));
  CHECK(words.find(",a b,$c,--launch it,") != words.npos);
}

TEST_CASE("a request to stop reaches the launcher as SIGUSR1, which it passes on, and nothing else does") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    CAPTURE(signal);
    CHECK(exit_code_after(kWaits, {signal}) == 7);
    CHECK(test::read_file("signals") == "usr1\n");
  }
}

TEST_CASE("a third request ends a launcher that does not react") {
  CHECK(exit_code_after("sh -c 'trap \"\" USR1 TERM; echo > ready; while :; do sleep 0.05; done'",
                        {SIGINT, SIGINT, SIGINT}) == 128 + SIGKILL);
}

TEST_CASE("a signal that is ignored at startup, as under nohup, is no request, and the exit code is known") {
  const std::string ends_by_itself =
      "sh -c 'trap \"\" USR1 TERM; echo > ready; until [ -e sent ]; do sleep 0.01; done; exit 7'";
  CHECK(exit_code_after(ends_by_itself, {SIGHUP, SIGINT, SIGTERM}, {SIGHUP, SIGCHLD}) == 7);
}
