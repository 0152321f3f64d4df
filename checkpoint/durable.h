#pragma once
// Durable files and folders: when a function returns, its effect survives a loss of power. Each Error names
// the path.

#include <string>
#include <string_view>

namespace flatshard {

// The temporary name of a file or folder, which is the same for all of its writers, such as the ranks of a
// run. The caller must exclude other writers, by a lock or by a private folder.
std::string unfinished_name(const std::string& path);

// Creates the file, replacing any existing one, and syncs it. Its name is durable once the folder is synced.
void write_durable(const std::string& path, std::string_view text);
void sync_folder(const std::string& path);
// Renames a file or folder within its folder, and syncs that folder. An existing file is replaced.
void rename_durable(const std::string& from, const std::string& to);

}  // namespace flatshard
