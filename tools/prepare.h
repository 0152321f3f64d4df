#pragma once
// The program `prepare`, which converts text and JSON lines to token files; callable from tests.

#include <iosfwd>

namespace flatshard {

struct PrepareStreams {
  std::istream& in;       // --files-from -
  std::ostream& out;      // the summary
  std::ostream& err;      // one line on failure
  bool progress = false;  // show progress on err
  bool colors = false;    // in samples on out
};

// Returns the exit status: 0, or 1 after one line on err. On failure existing output files are unchanged and
// nothing else is left behind, unless only printing the summary failed.
int run_prepare(int argc, const char* const* argv, const PrepareStreams& streams);

}  // namespace flatshard
