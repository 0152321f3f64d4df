#pragma once
// The programs `train --plan` and `train --search`, which read no training data and allocate no memory for
// the run.

#include <iosfwd>
#include <string>

#include "comm/world.h"
#include "train/config/config.h"

namespace flatshard {

struct PlanFor {
  int ranks = 0;           // 0: those of this job
  std::string gpu{};       // a GPU kind or a cluster file; empty: none
  std::string timeline{};  // folder for a timeline of the simulated step; empty: none
};

// Prints model, batch, FLOPs per token, communication units with their traffic, and memory; and whether that
// fits on the GPU.
void print_plan(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out);

// Prints the settings with which the run is fastest on ranks of a GPU kind or a cluster file.
void print_search(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out);

}  // namespace flatshard
