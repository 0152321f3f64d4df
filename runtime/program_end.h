#pragma once
// The end of a program: lost output is a failure even if everything else succeeded.

#include <iosfwd>
#include <string>

namespace flatshard {

// Flushes `out` and returns `status`. If output was lost, prints one line that begins with the program's name
// on `err` and returns `failure`.
int end_program(const std::string& program, int status, std::ostream& out, std::ostream& err,
                int failure = 1);

}  // namespace flatshard
