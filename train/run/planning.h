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
  std::string machines{};  // a GPU kind, a cluster file, or "cpu"; empty: none
  std::string timeline{};  // folder for a timeline of the simulated step; empty: none
  bool verbose = false;    // a search prints all settings that it simulated
};

// Prepares a config to be checked and planned for these machines, of PlanFor: for their device, and for other
// machines than these with a number of ranks, one by default.
void plan_for_machines(const std::string& machines, Config& config, int& ranks);

// Prints model, batch, FLOPs per token, communication units with their traffic, and memory; and whether that
// fits on the machines.
void print_plan(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out);

// Prints the settings with which the run is fastest on the machines.
void print_search(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out);

}  // namespace flatshard
