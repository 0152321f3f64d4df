#include "runtime/standard_streams.h"

#include <fcntl.h>
#include <initializer_list>
#include <unistd.h>

namespace flatshard {

void reserve_standard_streams() {
  // Opened for the other direction, and by their order: the lowest number that is free is given out.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace flatshard
