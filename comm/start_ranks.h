#pragma once
// Starts the ranks of this program with a launcher such as mpirun, and keeps the terminal's signals away from
// it. At Ctrl-C or SIGTERM mpirun does not wait for its ranks: Open MPI 4 kills them after one second, and
// meanwhile does not forward their output; Open MPI 5 kills them after a quarter of a second. But both pass
// SIGUSR1 on and wait, so the ranks can finish a step of any length and save.

#include <optional>
#include <string>
#include <vector>

namespace flatshard {

// The environment variable that tells a rank with which options the user had this program start it.
inline constexpr const char* kStartedByUs = "FLATSHARD_LAUNCH";

// The option that names a file to such a rank, which removes it to announce that it has started. It is an
// argument because not every launcher passes the environment on to other hosts.
inline constexpr const char* kStartsOption = "--rank-starts";

// The option with which this program only calls end_ranks() for a file, and exits.
inline constexpr const char* kEndRanksOption = "--end-ranks";

// Removes the file that kStartsOption names, if its name has the form that start_ranks() chooses.
void announce_start(const std::string& file);

// Kills the ranks on this host to which start_ranks() has given this file, and waits until none is left.
void end_ranks(const std::string& file);

struct Launcher {
  std::string command;  // words of a shell before the program, such as "mpirun -np 2"; may be empty
  std::string options;  // the options that asked for it, such as "--launch 'mpirun -np 2'"
  // Whether the command does nothing once its ranks have ended. It is then killed if it hangs half a minute
  // after the last rank of this host, as mpirun does where a host is lost.
  bool ends_with_ranks = false;
};

struct RanksEnded {
  int code = 0;  // the launcher's exit code; 128 + N after signal N
  bool asked_to_stop = false;
  bool hung = false;  // the launcher was killed because it outlived its ranks
  std::string file;   // the ranks' --rank-starts; "" if the current folder cannot be written
};

// Runs `COMMAND PROGRAM --rank-starts=FILE ARGUMENTS` in a shell and a process group of its own, with this
// program, until it has ended. The first SIGINT, SIGTERM or SIGUSR1, and any SIGHUP, reaches the launcher as
// SIGUSR1. A second one kills the ranks, a third the launcher too. A signal that is ignored at startup
// (nohup) stays ignored. Throws an Error if the launcher succeeds but no rank has called announce_start(). If
// the current folder cannot be written, no rank announces itself, and only the exit code counts.
RanksEnded start_ranks(const Launcher& launcher, std::vector<std::string> arguments);

}  // namespace flatshard
