#pragma once
// How a run ends, or does not end, by signals. SIGTERM, SIGINT, SIGUSR1 and SIGHUP ask it to stop: it
// finishes its step and saves. One of them that comes a second time ends the process at once, but for SIGHUP,
// which a terminal that goes away sends several times.

#include <array>
#include <csignal>

namespace flatshard {

// Listens for as long as it lives; one at a time. A signal that the process was started to ignore (nohup)
// stays ignored.
class StopRequest {
 public:
  static constexpr std::array kSignals{SIGTERM, SIGINT, SIGUSR1, SIGHUP};

  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // The signal that came first; 0 while none has.
  int signal() const;

 private:
  std::array<struct sigaction, kSignals.size()> before_{};
};

const char* signal_name(int signal);

// From now on output that nobody reads any more (`train | head`) is a write that fails; else SIGPIPE would
// end the process.
void survive_closed_output();

}  // namespace flatshard
