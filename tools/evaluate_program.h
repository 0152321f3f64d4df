#pragma once
// The program `evaluate`: loss and perplexity of a text, and the similarity score of answers; callable from
// tests. Under mpirun the ranks divide the work, and rank 0 prints.

#include <iosfwd>

namespace flatshard {

// Returns the exit status: 0, or 1 after one line on err. An error on one rank ends all ranks.
int run_evaluate(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace flatshard
