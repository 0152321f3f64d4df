#pragma once
// Records the last run: a file `latest` beside the run folders, one line such as "runs/tiny" with the names
// of the run's parent and of the run. A run writes it last. Programs that take a model folder default to it.

#include <filesystem>
#include <string>

namespace flatshard {

// The run folder named by runs/latest in `start`, or in the nearest folder above it that has this file. A
// relative path in the file is relative to the folder that contains runs/.
std::filesystem::path last_run(const std::string& start);

// Writes the file beside this run folder. If that fails, or the name is already used by something else,
// prints a line and changes nothing.
void note_last_run(const std::string& run);

}  // namespace flatshard
