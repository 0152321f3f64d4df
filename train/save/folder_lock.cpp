#include "train/save/folder_lock.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

#include "runtime/check.h"

namespace flatshard {

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

void FolderLock::take(double patience_seconds) {
  using Clock = std::chrono::steady_clock;
  if (file_ >= 0) return;
  file_ = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file_ < 0) return;
  const Clock::time_point begin = Clock::now();
  while (flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;
    if (std::chrono::duration<double>(Clock::now() - begin).count() > patience_seconds) {
      close(file_);
      file_ = -1;
      fail(str(folder_,
               ": another run is at work in this folder: wait until it ends, or choose another run.dir"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace flatshard
