#pragma once
// The command line of `train`: options of the program, and config keys as --section.key=value or
// --section.key value.

#include <string>
#include <vector>

#include "runtime/problems.h"

namespace CLI {
class App;
}

namespace flatshard {

struct TrainArguments {
  std::vector<std::string> options;    // for the parser
  std::vector<std::string> overrides;  // "optimizer.lr=1e-3"
};

// Separates the two. Adds a problem for each option that is neither the program's nor has the form of a key;
// it names the key that was probably meant. A key takes the next argument as its value, unless that begins
// with "--".
TrainArguments separate_overrides(const CLI::App& app, const std::vector<std::string>& arguments,
                                  Problems& problems);

// An Error for an argument that is left after the parser has taken its own.
void check_none_left(const std::vector<std::string>& left);

}  // namespace flatshard
