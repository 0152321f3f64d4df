#pragma once
// The program prepare: files of text or JSON lines in, token files out. All of it but the process, so that
// tests can call it.

#include <iosfwd>

namespace flatshard {

struct PrepareStreams {
  std::istream& in;       // --files-from -
  std::ostream& out;      // what was done
  std::ostream& err;      // the one line that says what went wrong
  bool progress = false;  // say on err, again and again, how far it is
};

// The exit status: 0, or 1 after one line on err. When it is not 0, what stood under the names of the outputs
// still does and nothing else is left behind, unless the token files are written and saying so failed.
int run_prepare(int argc, const char* const* argv, const PrepareStreams& streams);

}  // namespace flatshard
