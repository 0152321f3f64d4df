#pragma once
// The programs `train --plan` and `train --search`, which read no training data and allocate no memory for
// the run.

#include <iosfwd>
#include <string>

#include "comm/world.h"
#include "train/config/config.h"

namespace flatshard {

struct PlanFor {
  int ranks = 0;           // number of ranks; 0: this job's
  std::string machines{};  // a GPU kind, a cluster file, or "cpu"; empty: none
  std::string timeline{};  // folder for a timeline of the simulated step; empty: none
  bool verbose = false;    // a search prints all settings that it simulated
  bool saves = false;      // a plan is written to plan.json of the run folder (plan/saved_plan.h)
};

// Prepares a config to be checked and planned for PlanFor::machines: sets their device and, for machines
// other than this job's, at least one rank.
void plan_for_machines(const std::string& machines, Config& config, int& ranks);

// Prints model, batch, FLOPs per token, communication units with their traffic, and memory; and whether the
// run fits on the machines. A saved plan has the time of a step on them or, if there are none, on this job's,
// which are measured.
void print_plan(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out);

// Prints the settings with which the run is fastest on the machines.
void print_search(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out);

}  // namespace flatshard
