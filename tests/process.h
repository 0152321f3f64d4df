#pragma once
// Runs the project's programs as a user does: in a shell, in the current folder.

#include <string>

namespace flatshard::test {

struct Finished {
  int exit_code;
  std::string output;  // standard output and standard error, as they came
};

// A command line; "@train" in it stands for the program train of this build, and so for every program. A
// command that takes longer than the limit is ended and has exit code 124.
Finished run_command(const std::string& command, int limit_seconds = 300);

// "mpirun ... -np N", or "" for one rank: what to put before a program.
std::string launcher(int ranks);

// The command line that starts mpirun with these arguments, "@" standing for programs as above.
std::string launch(const std::string& arguments);

// Why several ranks cannot be started here; "" where they can.
std::string no_ranks_because();

// The text after `marker` to the end of its line; "" where the output lacks it. The last one counts.
std::string after(const std::string& output, const std::string& marker);

}  // namespace flatshard::test
