#pragma once
// A job whose ranks this program starts itself, with mpirun, and starts again when it loses some of them: on
// the hosts that still answer, from the newest checkpoint. Where a batch system restarts jobs, as Slurm does,
// the batch script does that.

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace flatshard {

struct Host {
  std::string name;
  int ranks = 0;  // most ranks that it takes
};

// Reads hosts as "h1:4,h2:4". Hosts without a number, as in "h1,h2", share `ranks` equally. An Error if they
// have too few places.
std::vector<Host> parse_hosts(const std::string& list, int ranks);

// How many ranks continue on these hosts: as many as before, or else the largest power of two that they have
// places for, which divides the lanes of a batch like the number before.
int ranks_on(const std::vector<Host>& hosts, int before);

// The command that starts ranks on these hosts; without any, on this one, or on those of a batch system.
std::string mpirun_command(const std::vector<Host>& hosts, int ranks);

struct Job {
  int ranks = 1;
  std::vector<Host> hosts{};
  int restarts = 0;     // how often it may start again
  std::string options;  // the options that asked for it, such as "--ranks 4 --restarts 3"
  std::vector<std::string> arguments{};
  // Called before a restart: the arguments with which the run continues.
  std::function<std::vector<std::string>()> arguments_again{};
};

// Runs the job to its end and returns the exit code of its last launcher. Says on `err` why it starts again.
int run_job(const Job& job, std::ostream& err);

}  // namespace flatshard
