#pragma once
// SIGTERM, SIGINT and SIGUSR1 as a wish: the first signal asks the run to end after its step, a second one
// ends the process at once.

#include <array>
#include <csignal>

namespace flatshard {

// Listens for as long as it lives; one at a time. A signal that the process was started to ignore stays
// ignored.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // The signal that came first; 0 while none has.
  int signal() const;

 private:
  std::array<struct sigaction, 3> before_{};
};

const char* signal_name(int signal);

}  // namespace flatshard
