#pragma once
// Runs the project's programs as a user does: in a shell, in the current folder.

#include <csignal>
#include <string>
#include <vector>

namespace flatshard::test {

struct Finished {
  int exit_code;
  std::string output;  // standard output and standard error, interleaved
};

// Runs a command line in which "@NAME" stands for the program NAME of this build. A command that exceeds the
// limit is killed and has exit code 124. It starts without input, and with no signal ignored or blocked.
Finished run_command(const std::string& command, int limit_seconds = 300);

// The prefix that starts a program on several ranks: "mpirun ... -np N", or "" for one rank.
std::string launcher(int ranks);

// The command line that starts mpirun with these arguments, with "@NAME" as above.
std::string launch(const std::string& arguments);

// While an object exists, no signal is ignored or blocked, whatever started the test program: nohup ignores
// SIGHUP, a script's background job SIGINT, a service SIGPIPE.
class DefaultSignals {
 public:
  DefaultSignals();
  ~DefaultSignals();
  DefaultSignals(const DefaultSignals&) = delete;
  DefaultSignals& operator=(const DefaultSignals&) = delete;

 private:
  std::vector<int> ignored_;
  sigset_t blocked_{};
};

// The reason why the signals of a process do not reach it at once; "" if they do.
std::string no_signals_because();

// The reason why several ranks cannot be started on this machine; "" if they can.
std::string no_ranks_because();

// The text after `marker` to the end of its line; "" if the output lacks it. The last occurrence counts.
std::string after(const std::string& output, const std::string& marker);

}  // namespace flatshard::test
