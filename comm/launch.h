#pragma once
// Information from the launcher of this process.

#include <optional>

namespace flatshard {

// The number of processes that a launcher (mpirun, srun ...) started together with this one; nothing when
// none did. A batch script or a shell inside an allocation is not started by one.
std::optional<int> launched_ranks();

// The number of this process among them, as the launcher reports it; 0 if it does not.
int launched_rank();

// An Error when a launcher started several processes but MPI has joined another number of them: every one
// would train alone, in one folder.
void check_ranks_joined(int joined);

// Seconds for which the launcher lets its ranks finish after it has sent them SIGTERM, which it does when it
// receives Ctrl-C or SIGTERM itself; nothing if it waits for them, or is not known.
std::optional<double> seconds_until_killed();

// The number of CPUs this process may run on, and of all CPUs of the machine.
struct Processors {
  int usable, all;
};
Processors processors();

}  // namespace flatshard
