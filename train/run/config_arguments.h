#pragma once
// Config keys on the command line of `train`, as --section.key=value or --section.key value.

#include <string>
#include <vector>

#include "runtime/problems.h"
#include "train/command_line/command.h"

namespace flatshard {

struct TrainArguments {
  Arguments options;                   // for the parser
  std::vector<std::string> overrides;  // "optimizer.lr=1e-3"
};

// Separates the two. Adds a problem for each option that is neither the program's nor has the form of a key;
// it names the key that was probably meant. A key takes the next argument as its value, unless that begins
// with "--".
TrainArguments separate_overrides(const Command& program, const Arguments& arguments, Problems& problems);

// An Error for an argument that is left after the parser has taken its own.
void check_none_left(const Arguments& left);

}  // namespace flatshard
