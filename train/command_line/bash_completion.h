#pragma once
// A program's completion for bash: subcommands, options, config keys, and values from fixed sets. All other
// words are completed as file names. The script needs nothing but bash.

#include <string>
#include <vector>

#include "train/config/fields.h"

namespace CLI {
class App;
}

namespace flatshard {

// A script that completes the program under its own name and as flatshard-NAME.
std::string bash_completion(const CLI::App& app, const std::vector<Field>& keys);

}  // namespace flatshard
