#pragma once
// The files of data.train or data.eval: one, several, or several with names of their own. A file without such
// a name is called as its path is up to the first dot of the last component, and without the folder where
// that is enough to tell it from the others: the names distinguish the losses of the files.

#include <string>
#include <variant>
#include <vector>

namespace flatshard {

struct NamedFile {
  std::string name, path;
  bool operator==(const NamedFile&) const = default;
};

using DataFiles = std::variant<std::string, std::vector<std::string>, std::vector<NamedFile>>;

inline constexpr size_t kMostDataFiles = 256;

// Returns the files in the order of the config; none for "". Names consist of letters, digits and the
// characters . _ - /.
std::vector<NamedFile> named_files(const DataFiles& files);

// An Error if the files of this key are too many, are not distinct, or have names with other characters.
void check_data_files(const char* key, const DataFiles& files);

}  // namespace flatshard
