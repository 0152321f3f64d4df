#include "train/run/stop_request.h"

#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// The signal that ends a process with a StopRequest when it receives these in turn; 0 if it survives.
int ending_signal(const std::vector<int>& sent) {
  const pid_t pid = fork();
  if (pid == 0) {
    const test::DefaultSignals defaults;
    const StopRequest request;
    for (const int signal : sent) raise(signal);
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("the first signal is the request, whatever follows") {
  const test::DefaultSignals defaults;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    const StopRequest request;
    CHECK(request.signal() == 0);
    raise(signal);
    CHECK(request.signal() == signal);
    raise(signal == SIGHUP ? SIGTERM : SIGHUP);
    CHECK(request.signal() == signal);
  }
}

TEST_CASE("a repeated signal ends the process, except SIGHUP; two different signals do not") {
  if (const std::string reason = test::no_signals_because(); !reason.empty()) return test::skip(reason);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    CHECK(ending_signal({signal}) == 0);
    CHECK(ending_signal({signal, signal}) == signal);
  }
  CHECK(ending_signal({SIGHUP, SIGHUP, SIGHUP}) == 0);
  CHECK(ending_signal({SIGHUP, SIGINT, SIGTERM}) == 0);
}

TEST_CASE("a signal ignored at startup requests nothing") {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const StopRequest request;
    raise(SIGHUP);
    CHECK(request.signal() == 0);
  }
  std::signal(SIGHUP, before);
}

TEST_CASE("signals have names") {
  CHECK(std::string(signal_name(SIGHUP)) == "SIGHUP");
  CHECK(std::string(signal_name(SIGUSR1)) == "SIGUSR1");
}

TEST_CASE("the first request is announced once, at once") {
  if (const std::string reason = test::no_signals_because(); !reason.empty()) return test::skip(reason);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    const test::DefaultSignals defaults;
    const StopRequest request(stop_announcement(false));
    raise(SIGUSR1);
    raise(SIGTERM);
    _exit(0);
  }
  waitpid(pid, nullptr, 0);
  char text[200];
  const ssize_t length = read(ends[0], text, sizeof text);
  REQUIRE(length > 0);
  CHECK(std::string(text, static_cast<size_t>(length)) == stop_announcement(false));
  close(ends[0]);
  close(ends[1]);
}
