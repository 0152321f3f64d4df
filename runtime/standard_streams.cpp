#include "runtime/standard_streams.h"

#include <fcntl.h>
#include <initializer_list>
#include <unistd.h>

namespace flatshard {

void reserve_standard_streams() {
  // The descriptors are opened for the opposite direction, in ascending order because open() returns the
  // lowest free one.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace flatshard
