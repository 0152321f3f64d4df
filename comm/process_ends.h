#pragma once
// Waits for other processes on this host to exit: through process descriptors where the kernel supports them,
// otherwise by polling ten times a second.

#include <chrono>
#include <sys/types.h>
#include <vector>

namespace flatshard {

class ProcessEnds {
 public:
  enum class By { descriptor, looking };
  // Watches the processes that have these ids now. By::looking forces polling.
  explicit ProcessEnds(const std::vector<pid_t>& pids, By by = By::descriptor);
  ~ProcessEnds();
  ProcessEnds(const ProcessEnds&) = delete;
  ProcessEnds& operator=(const ProcessEnds&) = delete;

  // The indices of the processes that have exited since the last call. Returns when one exits, after `most`,
  // or when any thread calls wake().
  std::vector<size_t> within(std::chrono::milliseconds most);
  void wake();

 private:
  struct Process {
    pid_t pid;
    int descriptor;  // -1: the process must be polled
    bool ended = false;
  };
  bool has_ended(const Process& process) const;

  std::vector<Process> processes_;
  bool looks_ = false;  // some processes must be polled
  int wake_;
};

}  // namespace flatshard
