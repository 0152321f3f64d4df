// A library for LD_PRELOAD that injects a fault into one of a program's file system calls. It counts the
// calls that modify a path containing DISK_FAULT_IN: create, write, truncate, sync, rename and remove.
// DISK_FAULT selects the fault and the call:
//   kill 17    the process is killed before its 17th such call
//   fail 17    the 17th call fails, with EIO
//   full 17    from the 17th call on, calls that need space fail with ENOSPC
//   count      no fault; prints the number of calls to standard error at the end
// In a job of several ranks it affects only DISK_FAULT_RANK.

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace {

enum class Takes { nothing, room };

std::atomic<long> calls{0};
std::array<std::atomic<bool>, 4096> watched{};  // file descriptors

const char* setting(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

bool acts_here() {
  static const bool here = *setting("DISK_FAULT_IN") && std::atoi(setting("OMPI_COMM_WORLD_RANK")) ==
                                                            std::atoi(setting("DISK_FAULT_RANK"));
  return here;
}

bool is_watched(const char* path) {
  if (!acts_here()) return false;
  std::string_view parts = setting("DISK_FAULT_IN");
  while (true) {
    const std::string_view part = parts.substr(0, parts.find(':'));
    if (std::string_view(path).find(part) != std::string_view::npos) return true;
    if (part.size() == parts.size()) return false;
    parts.remove_prefix(part.size() + 1);
  }
}
bool is_watched(int file) {
  return acts_here() && file >= 0 && static_cast<size_t>(file) < watched.size() &&
         watched[static_cast<size_t>(file)];
}
int opened(int file, bool watch) {
  if (file >= 0 && static_cast<size_t>(file) < watched.size()) watched[static_cast<size_t>(file)] = watch;
  return file;
}

// Counts a call and returns whether it must fail.
bool goes_wrong(Takes takes) {
  static const char* const what = setting("DISK_FAULT");
  static const long at = std::strchr(what, ' ') ? std::atol(std::strchr(what, ' ')) : 0;
  const long now = ++calls;
  if (std::strncmp(what, "kill", 4) == 0 && now == at) kill(getpid(), SIGKILL);
  if (std::strncmp(what, "fail", 4) == 0 && now == at) {
    errno = EIO;
    return true;
  }
  if (std::strncmp(what, "full", 4) == 0 && now >= at && takes == Takes::room) {
    errno = ENOSPC;
    return true;
  }
  return false;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

struct AtEnd {
  ~AtEnd() {
    if (acts_here() && std::strncmp(setting("DISK_FAULT"), "count", 5) == 0)
      std::fprintf(stderr, "disk calls %ld\n", calls.load());
  }
} at_end;

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  const bool watch = is_watched(path);
  if (watch && (flags & O_CREAT) && goes_wrong(Takes::room)) return -1;
  return opened(real<int(const char*, int, ...)>("open")(path, flags, mode), watch);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  const bool watch = is_watched(path) || is_watched(folder);
  return opened(real<int(int, const char*, int, ...)>("openat")(folder, path, flags, mode), watch);
}

ssize_t write(int file, const void* data, size_t bytes) {
  if (is_watched(file) && goes_wrong(Takes::room)) return -1;
  return real<ssize_t(int, const void*, size_t)>("write")(file, data, bytes);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  if (is_watched(file) && goes_wrong(Takes::room)) return -1;
  return real<ssize_t(int, const void*, size_t, off_t)>("pwrite")(file, data, bytes, offset);
}

int ftruncate(int file, off_t bytes) noexcept {
  if (is_watched(file) && goes_wrong(Takes::nothing)) return -1;
  return real<int(int, off_t)>("ftruncate")(file, bytes);
}

int fsync(int file) {
  if (is_watched(file) && goes_wrong(Takes::room)) return -1;
  return real<int(int)>("fsync")(file);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (is_watched(path) && goes_wrong(Takes::room)) return -1;
  return real<int(const char*, mode_t)>("mkdir")(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  if (is_watched(to) && goes_wrong(Takes::nothing)) return -1;
  return real<int(const char*, const char*)>("rename")(from, to);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  if ((is_watched(folder) || is_watched(path)) && goes_wrong(Takes::nothing)) return -1;
  return real<int(int, const char*, int)>("unlinkat")(folder, path, flags);
}

int rmdir(const char* path) noexcept {
  if (is_watched(path) && goes_wrong(Takes::nothing)) return -1;
  return real<int(const char*)>("rmdir")(path);
}

int close(int file) {
  opened(file, false);
  return real<int(int)>("close")(file);
}
}
