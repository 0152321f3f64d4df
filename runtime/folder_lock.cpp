#include "runtime/folder_lock.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "runtime/check.h"

namespace flatshard {

FolderLock::~FolderLock() { release(); }

void FolderLock::release() {
  if (file_ >= 0) close(std::exchange(file_, -1));
}

bool FolderLock::is_at_path() const {
  struct stat held {
  }, found{};
  return fstat(file_, &held) == 0 && stat(folder_.c_str(), &found) == 0 && held.st_dev == found.st_dev &&
         held.st_ino == found.st_ino;
}

bool FolderLock::take(double patience_seconds) {
  using Clock = std::chrono::steady_clock;
  if (file_ >= 0) return true;
  file_ = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file_ < 0 && errno == ENOENT) return false;
  check(file_ >= 0, folder_, ": cannot open this folder: ", std::strerror(errno));
  const Clock::time_point begin = Clock::now();
  while (flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return true;
    if (std::chrono::duration<double>(Clock::now() - begin).count() > patience_seconds) {
      release();
      fail(str(folder_, ": ", use_));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (is_at_path()) return true;
  release();
  return false;
}

}  // namespace flatshard
