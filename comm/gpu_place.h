#pragma once
// The choice of the GPU for each rank. A launcher may show all GPUs of a host to each of its ranks, or a
// different GPU to each rank, which then has number 0 on all of them. So ranks compare the identities of
// GPUs, not their numbers.

#include <string>
#include <vector>

#include "comm/world.h"

namespace flatshard {

struct GpuPlace {
  int index = 0;       // index among the GPUs that the rank can see
  std::string shared;  // "ranks 0 and 1 both use GPU-..."; "" if no two ranks of the run share a GPU
};

// The place of one rank. `visible` are the GPUs that each rank can see (visible_gpus() in runtime/gpu.h).
// Lower ranks choose first; each takes the visible GPU with the fewest ranks on it so far.
GpuPlace place_on_gpu(const std::vector<std::vector<std::string>>& visible, int rank);

// The place of this rank. Collective.
GpuPlace place_on_gpu(World& world);

}  // namespace flatshard
