#pragma once
// A folder that is there whole or not at all: its files are written into PATH.tmp, and it gets its name when
// all of them are on disk.

#include <string>
#include <string_view>

namespace flatshard {

class NewFolder {
 public:
  // An Error where something has the name already. What an interrupted attempt has left is removed.
  explicit NewFolder(const std::string& path);
  // Removes what has not been finished.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::string& unfinished() const { return unfinished_; }
  void write(const std::string& name, std::string_view text) const;
  // Files that the caller has written himself must be on disk by now.
  void finish();

 private:
  std::string path_, unfinished_;
  bool finished_ = false;
};

}  // namespace flatshard
