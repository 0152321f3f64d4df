#include "comm/process_ends.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr long kPidfdOpen = 434;  // older C libraries have no wrapper for this system call
constexpr std::chrono::milliseconds kBetweenLooks{100};

bool is_readable(int descriptor) {
  pollfd p{descriptor, POLLIN, 0};
  return poll(&p, 1, 0) > 0;
}

}  // namespace

ProcessEnds::ProcessEnds(const std::vector<pid_t>& pids, By by)
    : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(wake_ >= 0, "eventfd fails with error ", errno);
  for (const pid_t pid : pids) {
    const int descriptor = by == By::descriptor ? static_cast<int>(syscall(kPidfdOpen, pid, 0)) : -1;
    processes_.push_back({pid, descriptor});
    looks_ = looks_ || descriptor < 0;
  }
}

ProcessEnds::~ProcessEnds() {
  for (const Process& process : processes_)
    if (process.descriptor >= 0) close(process.descriptor);
  close(wake_);
}

bool ProcessEnds::has_ended(const Process& process) const {
  if (process.descriptor >= 0) return is_readable(process.descriptor);
  return kill(process.pid, 0) != 0 && errno == ESRCH;
}

std::vector<size_t> ProcessEnds::within(std::chrono::milliseconds most) {
  std::vector<pollfd> descriptors{{wake_, POLLIN, 0}};
  for (const Process& process : processes_)
    if (process.descriptor >= 0 && !process.ended) descriptors.push_back({process.descriptor, POLLIN, 0});
  const auto limit = looks_ ? std::min(most, kBetweenLooks) : most;
  poll(descriptors.data(), descriptors.size(), static_cast<int>(limit.count()));
  eventfd_t ignored = 0;
  eventfd_read(wake_, &ignored);
  std::vector<size_t> ended;
  for (size_t i = 0; i < processes_.size(); ++i)
    if (!processes_[i].ended && has_ended(processes_[i])) {
      processes_[i].ended = true;
      ended.push_back(i);
    }
  return ended;
}

void ProcessEnds::wake() { eventfd_write(wake_, 1); }

}  // namespace flatshard
