#pragma once
// The program `train`, callable from tests with their own streams.

#include "train/command_line/program.h"

namespace flatshard {

// Returns 0 on success or after --help; 75 if a signal stopped a run with --resume auto; otherwise 1 after
// one line on err that starts with "train: ", or several. An error on one rank ends all ranks.
int run_train(const Arguments& arguments, const Streams& streams);

}  // namespace flatshard
