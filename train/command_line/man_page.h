#pragma once
// A program's man page, in the man macros of troff: what --help prints, as sections.

#include <string>

#include "train/command_line/command.h"

namespace flatshard {

// Lines of the footer that begin with one of the program's keys become entries like options.
std::string man_page(const Command& program);

}  // namespace flatshard
