#include "comm/launch.h"

#include <algorithm>
#include <cstdlib>
#include <sched.h>
#include <thread>

#include "comm/world.h"

namespace flatshard {

std::optional<int> launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* value = std::getenv(name)) return std::max(1, std::atoi(value));
  return std::nullopt;
}

Processors processors() {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {all, all};
  return {std::max(1, CPU_COUNT(&set)), std::max<int>(all, CPU_COUNT(&set))};
}

int threads_for(const World& world) {
  const Processors p = processors();
  // mpirun binds each rank to processors of its own where there are enough.
  if (p.usable < p.all && p.usable * world.local_size() <= p.all) return p.usable;
  return std::max(1, p.usable / world.local_size());
}

}  // namespace flatshard
