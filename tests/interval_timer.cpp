// A library for LD_PRELOAD with what a profiler does: a timer that interrupts the program every 2 ms of its
// life, and a handler of its own, here an empty one, without a stack of its own. Interrupted system calls
// continue, or with INTERVAL_TIMER=fail they fail with EINTR.

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/time.h>

namespace {

__attribute__((constructor)) void start() {
  const char* const calls = std::getenv("INTERVAL_TIMER");
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = calls && std::strcmp(calls, "fail") == 0 ? 0 : SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  constexpr timeval kEvery{0, 2000};
  const itimerval often{kEvery, kEvery};
  setitimer(ITIMER_REAL, &often, nullptr);
}

}  // namespace
