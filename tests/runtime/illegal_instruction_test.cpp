#include "runtime/illegal_instruction.h"

#include <array>
#include <csignal>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a program that meets an unknown instruction says so, and still ends by the signal") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]), close(ends[1]);
    explain_illegal_instructions("train");
    raise(SIGILL);
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 256> block{};
  for (ssize_t n; (n = read(ends[0], block.data(), block.size())) > 0;)
    text.append(block.data(), static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGILL);
  CHECK(text.starts_with("train: this processor lacks an instruction that the program was compiled with ("));
  CHECK(text.ends_with("; compile with -DFLATSHARD_NATIVE=OFF for other processors\n"));
}
