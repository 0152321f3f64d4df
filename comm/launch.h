#pragma once
// Information from the launcher of this process.

#include <optional>

namespace flatshard {

// The number of processes that a launcher (mpirun, srun ...) started, including this one; nullopt without a
// launcher, as in a batch script or a shell inside an allocation.
std::optional<int> launched_ranks();

// The rank of this process, as the launcher reports it; 0 if it does not.
int launched_rank();

// Throws an Error if a launcher started several processes but MPI has joined another number of them: each
// would train alone, in the same folder.
void check_ranks_joined(int joined);

// The seconds between the SIGTERM that the launcher sends its ranks, when it receives Ctrl-C or SIGTERM
// itself, and their kill; nullopt if it waits for its ranks, or if it is not known.
std::optional<double> seconds_until_killed();

// The number of CPUs that this process may run on, and the number of all CPUs of the machine.
struct Processors {
  int usable, all;
};
Processors processors();

}  // namespace flatshard
