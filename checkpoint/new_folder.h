#pragma once
// A folder that appears complete or not at all: its files are written into a temporary folder
// (runtime/temporary.h), which is renamed once all of them are on disk.

#include <string>
#include <string_view>

#include "runtime/temporary.h"

namespace flatshard {

class NewFolder {
 public:
  // Throws an Error if the path already exists.
  explicit NewFolder(const std::string& path);

  const std::string& unfinished() const { return temporary_.path(); }
  void write(const std::string& name, std::string_view text) const;
  // Renames the folder to its final name. Files that the caller wrote by other means must be on disk.
  void finish();

 private:
  std::string path_;
  Temporary temporary_;
};

}  // namespace flatshard
