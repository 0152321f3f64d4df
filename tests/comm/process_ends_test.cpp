#include "comm/process_ends.h"

#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr std::chrono::milliseconds kShort{1}, kLong{60000};

// A process that runs until it is killed.
pid_t start_child() {
  const pid_t pid = fork();
  if (pid == 0)
    for (;;) pause();
  return pid;
}

void end_child(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace

TEST_CASE("the exit of a process is reported once, by descriptor and by polling") {
  for (const auto by : {ProcessEnds::By::descriptor, ProcessEnds::By::looking}) {
    CAPTURE(static_cast<int>(by));
    const pid_t first = start_child(), second = start_child(), third = start_child();
    ProcessEnds ends({first, second, third}, by);
    CHECK(ends.within(kShort).empty());
    end_child(second);
    CHECK(ends.within(kLong) == std::vector<size_t>{1});
    CHECK(ends.within(kShort).empty());
    end_child(first);
    end_child(third);
    std::vector<size_t> seen = ends.within(kLong);
    CHECK(seen == std::vector<size_t>{0, 2});
  }
}

TEST_CASE("a process that exited before the watch began is reported") {
  const pid_t pid = start_child();
  end_child(pid);
  ProcessEnds ends({pid});
  CHECK(ends.within(kLong) == std::vector<size_t>{0});
}

TEST_CASE("wake() ends a wait early") {
  const pid_t pid = start_child();
  ProcessEnds ends({pid});
  std::thread other([&] { ends.wake(); });
  CHECK(ends.within(kLong).empty());
  other.join();
  end_child(pid);
}
