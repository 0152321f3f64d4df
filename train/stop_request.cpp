#include "train/stop_request.h"

#include <atomic>

namespace flatshard {
namespace {

std::atomic<int> asked_by{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch it");

void ask(int signal) {
  asked_by = signal;
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
}

void listen(int signal, struct sigaction& before) {
  sigaction(signal, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = ask;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

StopRequest::StopRequest() {
  asked_by = 0;
  listen(SIGTERM, before_term_);
  listen(SIGINT, before_int_);
}

StopRequest::~StopRequest() {
  sigaction(SIGTERM, &before_term_, nullptr);
  sigaction(SIGINT, &before_int_, nullptr);
}

int StopRequest::signal() const { return asked_by; }

const char* signal_name(int signal) { return signal == SIGTERM ? "SIGTERM" : "SIGINT"; }

}  // namespace flatshard
