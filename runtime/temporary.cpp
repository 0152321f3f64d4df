#include "runtime/temporary.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/check.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// A path for the signal handler to remove, in static memory because a signal may arrive at any time.
struct Registration {
  std::atomic<bool> taken{false}, ready{false};
  std::array<char, 4096> path{};
};
std::array<Registration, 16> registrations;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler reads it");

// This function and the next make only async-signal-safe calls. A temporary folder contains only files.
void remove_folder(const char* path) {
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  alignas(dirent64) std::array<char, 4096> entries;
  bool removed = true;
  while (removed) {  // an entry may be missed while others are removed
    removed = false;
    lseek(folder, 0, SEEK_SET);
    for (ssize_t bytes; (bytes = getdents64(folder, entries.data(), entries.size())) > 0;)
      for (ssize_t at = 0; at < bytes;) {
        const auto* const entry = reinterpret_cast<const dirent64*>(entries.data() + at);
        removed |= unlinkat(folder, entry->d_name, 0) == 0;
        at += entry->d_reclen;
      }
  }
  close(folder);
  rmdir(path);
}

void remove_all_and_end(int signal) {
  for (Registration& registration : registrations)
    if (registration.ready && unlink(registration.path.data()) != 0 && errno == EISDIR)
      remove_folder(registration.path.data());
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void remove_on_signals() {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL)
      std::signal(signal, remove_all_and_end);
  }
}

// -1 if no registration is free or the path is too long; a signal then leaves the file behind.
int register_path(const std::string& path) {
  for (size_t i = 0; i < registrations.size() && path.size() < registrations[i].path.size(); ++i) {
    if (registrations[i].taken.exchange(true)) continue;
    std::copy(path.c_str(), path.c_str() + path.size() + 1, registrations[i].path.data());
    registrations[i].ready = true;
    return static_cast<int>(i);
  }
  return -1;
}

void give_back(int registration) {
  if (registration < 0) return;
  registrations[static_cast<size_t>(registration)].ready = false;
  registrations[static_cast<size_t>(registration)].taken = false;
}

std::string temporary_name(const fs::path& destination) {
  constexpr size_t kMostName = 255, kAdded = std::string_view(".0123456789abcdef.tmp").size();
  uint64_t number = 0;
  const bool drawn = getrandom(&number, sizeof number, 0) == sizeof number;
  check(drawn, "the system gives no random numbers: ", std::strerror(errno));
  std::array<char, kAdded + 1> ending;
  std::snprintf(ending.data(), ending.size(), ".%016llx.tmp", static_cast<unsigned long long>(number));
  const std::string name = destination.filename().string().substr(0, kMostName - kAdded);
  return (destination.parent_path() / (name + ending.data())).string();
}

}  // namespace

Temporary::Temporary(const std::string& destination, const Create& create)
    : path_(temporary_name(destination)) {
  remove_on_signals();
  registration_ = register_path(fs::absolute(path_).string());  // before the file exists
  exists_ = create(path_.c_str());
  if (exists_) return;
  const int reason = errno;
  give_back(registration_);
  fail(str(destination, ": cannot write: ", std::strerror(reason)));
}

Temporary::~Temporary() {
  std::error_code ignored;
  if (exists_) fs::remove_all(path_, ignored);
  give_back(registration_);
}

}  // namespace flatshard
