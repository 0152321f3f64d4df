#include "comm/launch.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "comm/start_ranks.h"
#include "comm/world.h"
#include "runtime/check.h"
#include "runtime/parallel.h"

namespace flatshard {

namespace {

// A variable that a launcher sets, and the number of processes that it implies: all of them, or a lower
// bound.
struct Launch {
  const char* variable;
  int ranks;
  bool all;
};

// The innermost launcher comes first: srun may start the daemons of mpirun, whose processes then inherit the
// number of daemons. SLURM_NTASKS is not here: an allocation sets it for a plain program as well.
constexpr const char* kSizes[] = {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE",
                                  "JSM_NAMESPACE_SIZE", "SLURM_STEP_NUM_TASKS"};

std::vector<Launch> launches() {
  std::vector<Launch> found;
  for (const char* name : kSizes)
    if (const char* value = std::getenv(name)) found.push_back({name, std::max(1, std::atoi(value)), true});
  if (const char* value = std::getenv("MPI_LOCALNRANKS"))  // the processes of this host
    found.push_back({"MPI_LOCALNRANKS", std::max(1, std::atoi(value)), false});
  if (const char* value = std::getenv("PMIX_RANK"))  // lower ranks exist, too
    found.push_back({"PMIX_RANK", 1 + std::max(0, std::atoi(value)), false});
  return found;
}

}  // namespace

std::optional<int> launched_ranks() {
  const std::vector<Launch> found = launches();
  return found.empty() ? std::nullopt : std::optional(found.front().ranks);
}

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                           "JSM_NAMESPACE_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name)) return std::max(0, std::atoi(value));
  return 0;
}

void check_ranks_joined(int joined) {
  const std::vector<Launch> found = launches();
  if (std::any_of(found.begin(), found.end(), [&](Launch l) { return l.all && l.ranks == joined; })) return;
  for (const auto& [variable, ranks, all] : found)
    check(!all && ranks <= joined, "a launcher started ", all ? "" : "at least ", ranks,
          ranks == 1 ? " process (" : " processes (", variable, "), but MPI has joined ", joined,
          ": use the mpirun of the MPI library that this program was built with, or srun with an --mpi that "
          "the library supports, such as pmix; to run one process alone, unset ",
          variable);
}

std::optional<double> seconds_until_killed() {
  if (std::getenv(kStartedByUs) || !std::getenv("OMPI_COMM_WORLD_SIZE")) return {};
  if (std::getenv("PRTE_LAUNCHED")) return 0.25;
  const char* const seconds = std::getenv("OMPI_MCA_odls_base_sigkill_timeout");
  return seconds ? std::atof(seconds) : 1;
}

Processors processors() {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int usable = usable_processors();
  return {usable, std::max(all, usable)};
}

int threads_for(const World& world) {
  const Processors p = processors();
  // mpirun binds each rank to its own processors if there are enough.
  if (p.usable < p.all && p.usable * world.local_size() <= p.all) return p.usable;
  return std::max(1, p.usable / world.local_size());
}

}  // namespace flatshard
