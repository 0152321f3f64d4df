#include "runtime/program_end.h"

#include <cerrno>
#include <cstring>
#include <ostream>

namespace flatshard {

int end_program(const std::string& program, int status, std::ostream& out, std::ostream& err, int failure) {
  errno = 0;  // stays 0 if an earlier write failed
  out.flush();
  const int reason = errno;
  if (out.good()) return status;
  err << program << ": cannot write the output" << (reason == 0 ? "" : ": ")
      << (reason == 0 ? "" : std::strerror(reason)) << std::endl;
  return failure;
}

}  // namespace flatshard
