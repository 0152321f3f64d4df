#pragma once
// What a launcher says in the environment of a process it starts.

#include <optional>

namespace flatshard {

// The number of processes that mpirun or srun started together with this one; nothing when neither did.
std::optional<int> launched_ranks();

// The processors this process may run on, and those the machine has.
struct Processors {
  int usable, all;
};
Processors processors();

}  // namespace flatshard
