#pragma once
// An advisory lock that gives a folder to one process at a time. The system releases it when the process
// ends, however it ends.

#include <string>
#include <utility>

namespace flatshard {

class FolderLock {
 public:
  // `use` ends the Error of take(): it says what holds the folder and what to do.
  FolderLock(std::string folder, std::string use) : folder_(std::move(folder)), use_(std::move(use)) {}
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Locks the folder; false if it does not exist, or if the previous holder removed it. Waits for up to
  // `patience_seconds`, in case the holder is about to end, then throws an Error. On a file system without
  // locks every process succeeds.
  bool take(double patience_seconds = 5);

 private:
  bool is_at_path() const;
  void release();

  std::string folder_, use_;
  int file_ = -1;
};

}  // namespace flatshard
