#pragma once
// What every program answers about itself: --version, and its man page and bash completion, which the build
// writes for the installation. Both are made from the declared options, so there is no second list to keep.

#include <vector>

#include "train/config/fields.h"

namespace CLI {
class App;
}

namespace flatshard {

// Declares --version and the hidden option --describe (man, bash), which print and exit. Other options may be
// declared before or after. `keys`: config keys that the program accepts as --section.key=value.
void add_standard_options(CLI::App& app, std::vector<Field> keys = {});

}  // namespace flatshard
