#pragma once
// A job of several ranks that runs in the background, so that the test can kill or suspend its processes.

#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/process.h"

namespace flatshard::test {

class Job {
 public:
  // Starts mpirun with these arguments in a folder; "@train" is the program train of this build. mpirun
  // starts its ranks with no signal ignored or blocked.
  Job(const std::string& folder, const std::string& arguments);
  // Kills the remaining processes.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Blocks until the output contains a text, and returns the processes of the ranks, by rank.
  std::vector<pid_t> ranks_after(const std::string& text, int count);
  void signal_launcher(int signal);
  // Blocks until mpirun has ended. If it takes longer than the limit, it is killed and has exit code 124.
  Finished wait(int limit_seconds = 180);
  std::string output() const;

 private:
  std::string output_path_;
  pid_t mpirun_;
  bool ended_ = false;
  std::vector<pid_t> ranks_;
};

// Whether a process has exited, or is a zombie.
bool is_gone(pid_t pid);
// Blocks until `holds` returns true or the limit is reached, and returns its last result.
bool eventually(const std::function<bool()>& holds, int limit_seconds = 180);
// Whether the process has a handler for the signal.
bool handles(pid_t pid, int signal);

}  // namespace flatshard::test
