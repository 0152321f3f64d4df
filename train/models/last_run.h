#pragma once
// Which run was the last: a file "latest" beside the folders of runs, with one line such as "runs/tiny", the
// name of the folder that they lie in and that of the run. A run writes it when all else is done. It is a
// convenience of programs that take a model's folder.

#include <filesystem>
#include <string>

namespace flatshard {

// The folder that runs/latest names, in `start` or the nearest folder above it that has this file. A relative
// path there counts from the folder that holds runs/.
std::filesystem::path last_run(const std::string& start);

// Writes the note beside this run's folder. When that fails, or something that is not such a note has the
// name, it prints a line and changes nothing.
void note_last_run(const std::string& run);

}  // namespace flatshard
