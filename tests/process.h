#pragma once
// Runs the project's programs as a user does: in a shell, in the current folder.

#include <string>

namespace flatshard::test {

struct Finished {
  int exit_code;
  std::string output;  // standard output and standard error, interleaved
};

// Runs a command line in which "@NAME" stands for the program NAME of this build. A command that exceeds the
// limit is killed and has exit code 124.
Finished run_command(const std::string& command, int limit_seconds = 300);

// The prefix that starts a program on several ranks: "mpirun ... -np N", or "" for one rank.
std::string launcher(int ranks);

// The command line that starts mpirun with these arguments, with "@NAME" as above.
std::string launch(const std::string& arguments);

// Why the signals of a process do not reach it at once; "" if they do.
std::string no_signals_because();

// Why several ranks cannot be started on this machine; "" if they can.
std::string no_ranks_because();

// The text after `marker` to the end of its line; "" if the output lacks it. The last occurrence counts.
std::string after(const std::string& output, const std::string& marker);

}  // namespace flatshard::test
