#pragma once
// Keeps a folder to one process at a time. The system releases the lock when the process ends, however it
// ends. The lock is advisory: it keeps out only processes that take it.

#include <string>

namespace flatshard {

class FolderLock {
 public:
  explicit FolderLock(std::string folder) : folder_(std::move(folder)) {}
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Locks the folder at the path; false when there is none, or when the process that held it has removed it.
  // An Error when another process holds it for longer than a process takes that is about to end. On a file
  // system without locks every process succeeds.
  bool take(double patience_seconds = 5);

 private:
  bool is_at_path() const;
  void release();

  std::string folder_;
  int file_ = -1;
};

}  // namespace flatshard
