#pragma once
// Graceful shutdown on signals. SIGTERM, SIGINT, SIGUSR1 and SIGHUP request a stop: the run finishes its step
// and saves. Repeating a signal ends the process at once, except SIGHUP, which a closing terminal sends
// several times.

#include <array>
#include <csignal>
#include <string>

namespace flatshard {

// Handles the signals during its lifetime; one object at a time. A signal that is ignored at startup (nohup)
// stays ignored.
class StopRequest {
 public:
  static constexpr std::array kSignals{SIGTERM, SIGINT, SIGUSR1, SIGHUP};

  // The first request writes the announcement to standard output at once, long before the step ends.
  explicit StopRequest(const std::string& announcement = "");
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // The first signal received; 0 if none.
  int signal() const;

 private:
  std::array<struct sigaction, kSignals.size()> before_{};
};

// The first stop request that any rank received; the same on all ranks.
struct FirstStop {
  int rank = 0, signal = 0;  // signal: 0 if there is none

  // Call on all ranks with the same arguments; signal 0 is none.
  void note(int from, double received) {
    if (received != 0 && signal == 0) *this = {from, static_cast<int>(received)};
  }
};

// The announcement of a stop. On a terminal, it replaces the line that is being rewritten, with the ^C that
// the terminal shows there.
std::string stop_announcement(bool terminal);

const char* signal_name(int signal);

// Ignores SIGPIPE, so that closed output (`train | head`) fails a write instead of ending the process.
void survive_closed_output();

}  // namespace flatshard
