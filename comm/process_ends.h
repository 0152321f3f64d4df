#pragma once
// Waits for other processes of this host to end: at once where the kernel gives out process descriptors,
// elsewhere by looking ten times a second.

#include <chrono>
#include <sys/types.h>
#include <vector>

namespace flatshard {

class ProcessEnds {
 public:
  enum class By { descriptor, looking };
  // The processes of these ids as they are now; by looking alone where asked.
  explicit ProcessEnds(const std::vector<pid_t>& pids, By by = By::descriptor);
  ~ProcessEnds();
  ProcessEnds(const ProcessEnds&) = delete;
  ProcessEnds& operator=(const ProcessEnds&) = delete;

  // Which processes, by their places in the list, have ended since the last call. Returns when one has, after
  // `most`, or when wake() is called, from any thread.
  std::vector<size_t> within(std::chrono::milliseconds most);
  void wake();

 private:
  struct Process {
    pid_t pid;
    int descriptor;  // -1: look for it
    bool ended = false;
  };
  bool has_ended(const Process& process) const;

  std::vector<Process> processes_;
  bool looks_ = false;  // for some of them
  int wake_;
};

}  // namespace flatshard
