#pragma once
// Files that are whole or not there. They are written under an unfinished name, which ends in ".tmp", and
// then get their own.

#include <cstdint>
#include <string>
#include <string_view>

namespace flatshard {

// Replaces what has the name so far. An Error names the file; then nothing unfinished is left behind.
void write_whole_file(const std::string& path, std::string_view text);

// The last step alone, for who writes the unfinished file in a way of its own.
std::string unfinished_name(const std::string& path);
void finish_file(const std::string& path);

// A write beyond a limit on the size of files (ulimit -f) fails from now on, as on a full disk; else a signal
// would end the process. The number of open files may reach the hard limit (ulimit -Hn).
void survive_file_limits();
// How many more files this process can open before it reaches its limit.
int64_t files_left_to_open();

}  // namespace flatshard
