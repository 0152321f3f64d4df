#include "train/run/stop_request.h"

#include <atomic>
#include <cerrno>
#include <unistd.h>

namespace flatshard {
namespace {

std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch it");

std::string announced;  // it does not change while the handler is installed

void request_stop(int signal) {
  int none = 0;
  const int error = errno;
  if (first_signal.compare_exchange_strong(none, signal) && !announced.empty()) {
    const ssize_t ignored = write(STDOUT_FILENO, announced.data(), announced.size());
    static_cast<void>(ignored);
  }
  errno = error;
  if (signal != SIGHUP) std::signal(signal, SIG_DFL);
}

}  // namespace

StopRequest::StopRequest(const std::string& announcement) {
  first_signal = 0;
  announced = announcement;
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopRequest::~StopRequest() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

std::string stop_announcement(bool terminal) {
  return terminal ? "\r\x1b[Kstopping after this step; press again to kill\n"
                  : "stopping after this step; the same signal again kills the process\n";
}

int StopRequest::signal() const { return first_signal; }

const char* signal_name(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "SIGUSR1";
  }
}

void survive_closed_output() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace flatshard
