#include "runtime/standard_streams.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a file never gets the descriptor of a missing standard stream, and using that stream fails") {
  const pid_t pid = fork();
  if (pid == 0) {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
    reserve_standard_streams();
    char byte = 'x';
    const bool held = open("standard_streams", O_CREAT | O_RDWR, 0644) > STDERR_FILENO;
    const bool fails = write(STDOUT_FILENO, &byte, 1) < 0 && write(STDERR_FILENO, &byte, 1) < 0 &&
                       read(STDIN_FILENO, &byte, 1) < 0;
    _exit(held && fails ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
