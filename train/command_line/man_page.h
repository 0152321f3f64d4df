#pragma once
// A program's man page, in the man macros of troff: what --help prints, as sections.

#include <string>
#include <vector>

#include "train/config/fields.h"

namespace CLI {
class App;
}

namespace flatshard {

// Lines of the footer that begin with one of the keys become entries like options.
std::string man_page(const CLI::App& app, const std::vector<Field>& keys);

}  // namespace flatshard
