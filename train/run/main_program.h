#pragma once
// The program `train`, callable from tests with their own streams. As the body of main, it is the only place
// that catches exceptions.

#include <iosfwd>

namespace flatshard {

// Returns 0 on success or after --help, otherwise 1 after one line on err that starts with "train: ". An
// error on one rank ends all ranks.
int train_main(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace flatshard
