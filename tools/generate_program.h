#pragma once
// The program `generate`, which continues prompts with a trained model; callable from tests.

#include <iosfwd>

namespace flatshard {

struct GenerateStreams {
  std::istream& in;   // --chat
  std::ostream& out;  // continuations
  std::ostream& err;  // notes, and one line on failure
};

// Returns the exit status: 0, or 1 after one line on err.
int run_generate(int argc, const char* const* argv, const GenerateStreams& streams);

}  // namespace flatshard
