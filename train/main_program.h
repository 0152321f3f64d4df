#pragma once
// The program `train` but for its process: from a command line to an exit code. It is the body of main, and
// so the one place that catches; tests call it with streams of their own.

#include <iosfwd>

namespace flatshard {

// 0 when all went well, or help was asked for; otherwise 1 after one line on err that begins with "train: ".
// Where several ranks run, a mistake of one ends them all.
int train_main(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace flatshard
