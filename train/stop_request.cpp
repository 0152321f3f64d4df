#include "train/stop_request.h"

#include <atomic>

namespace flatshard {
namespace {

constexpr std::array kSignals{SIGTERM, SIGINT, SIGUSR1};
std::atomic<int> asked_by{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch it");

void ask(int signal) {
  asked_by = signal;
  for (const int each : kSignals) std::signal(each, SIG_DFL);
}

}  // namespace

StopRequest::StopRequest() {
  asked_by = 0;
  struct sigaction action {};
  action.sa_handler = ask;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopRequest::~StopRequest() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

int StopRequest::signal() const { return asked_by; }

const char* signal_name(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGUSR1";
}

}  // namespace flatshard
