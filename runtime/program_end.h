#pragma once
// The end of a program: output that did not arrive is a failure, though everything else went well.

#include <iosfwd>
#include <string>

namespace flatshard {

// Flushes `out`. Returns `status`, or, where something that was written to `out` is lost, `failure` after one
// line on `err` that begins with the program's name.
int end_program(const std::string& program, int status, std::ostream& out, std::ostream& err,
                int failure = 1);

}  // namespace flatshard
