#pragma once
// Files that are whole or not there. They are written under an unfinished name, which ends in ".tmp", and
// then get their own.

#include <string>
#include <string_view>

namespace flatshard {

// Replaces what has the name so far. An Error names the file; then nothing unfinished is left behind.
void write_whole_file(const std::string& path, std::string_view text);

// The last step alone, for who writes the unfinished file in a way of its own.
std::string unfinished_name(const std::string& path);
void finish_file(const std::string& path);

}  // namespace flatshard
