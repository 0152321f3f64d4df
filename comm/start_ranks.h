#pragma once
// Starts the ranks of this program with a launcher such as mpirun, and keeps the terminal's signals away from
// it. At Ctrl-C or SIGTERM mpirun does not wait for its ranks: Open MPI 4 kills them after one second, and
// meanwhile does not forward their output; Open MPI 5 kills them after a quarter of a second. But both pass
// SIGUSR1 on and wait, so the ranks can finish a step of any length and save.

#include <string>
#include <vector>

namespace flatshard {

// The environment variable that tells a rank which launcher this program has started it with.
inline constexpr const char* kStartedByUs = "FLATSHARD_LAUNCH";

// The option that names a file to such a rank, which removes it to announce that it has started. It is an
// argument because not every launcher passes the environment on to other hosts.
inline constexpr const char* kStartsOption = "--rank-starts";

// Removes the file that kStartsOption names, if its name has the form that start_ranks() chooses.
void announce_start(const std::string& file);

// Runs `launcher PROGRAM --rank-starts=FILE ARGUMENTS` in a shell and a process group of its own, with this
// program, and returns its exit code once it has ended. The first SIGINT, SIGTERM or SIGUSR1, and any SIGHUP,
// reaches the launcher as SIGUSR1. A second one kills the ranks, a third the launcher too. A signal that is
// ignored at startup (nohup) stays ignored. Throws an Error if the launcher succeeds but no rank has called
// announce_start(). If the current folder cannot be written, no rank announces itself, and only the exit code
// counts.
int start_ranks(const std::string& launcher, std::vector<std::string> arguments);

}  // namespace flatshard
