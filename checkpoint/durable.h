#pragma once
// Files and folders that are on disk, not only on their way there, when a function returns. What follows a
// call here may rely on it even if the machine loses power in between. Each Error names the path.

#include <string>
#include <string_view>

namespace flatshard {

// The temporary name of a file or folder whose writers must all know it, as the ranks of a run do. The caller
// must see to it that nobody else writes the same one: by a lock, or by a folder of its own.
std::string unfinished_name(const std::string& path);

// Creates the file under this very name, in place of what has it, and syncs it; the name itself is durable
// once its folder is synced.
void write_durable(const std::string& path, std::string_view text);
void sync_folder(const std::string& path);
// Gives a file or folder another name in the same folder, and syncs that folder. A file of that name is
// replaced.
void rename_durable(const std::string& from, const std::string& to);

}  // namespace flatshard
