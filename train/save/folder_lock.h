#pragma once
// A folder that one process at a time works in. The system lets go of it when the process ends, however it
// ends. What does not ask is not kept out.

#include <string>

namespace flatshard {

class FolderLock {
 public:
  explicit FolderLock(std::string folder) : folder_(std::move(folder)) {}
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // From now on this process has the folder, if it is there: call this again when it has been made. An Error
  // when another has it and keeps it for longer than a process takes that is about to end. File systems that
  // know no locks are passed over.
  void take(double patience_seconds = 5);

 private:
  std::string folder_;
  int file_ = -1;
};

}  // namespace flatshard
