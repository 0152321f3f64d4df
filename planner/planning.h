#pragma once
// The programs `train --plan` and `train --search`, which read no training data and allocate no memory for
// the run.

#include <iosfwd>
#include <optional>
#include <string>

#include "comm/world.h"
#include "planner/machines/cluster.h"
#include "train/setup/run_setup.h"

namespace flatshard {

struct PlanFor {
  int ranks = 0;                     // number of ranks; 0: this job's
  std::string machines{};            // a GPU kind, a cluster file, or "cpu"; empty: none
  std::string timeline{};            // folder for a timeline of the simulated step; empty: none
  bool verbose = false;              // a search prints all settings that it simulated
  bool saves = false;                // a plan is written to plan.json of the run folder (plan/saved_plan.h)
  std::optional<Cluster> cluster{};  // set by plan_for_machines() for machines other than this job's
};

// Prepares a plan and its config, before that is resolved, for PlanFor::machines: sets their device and, for
// machines other than this job's, their ranks per host and at least one rank.
void plan_for_machines(PlanFor& wanted, Config& config);

// Prints model, batch, FLOPs per token, communication units with their traffic, and memory; and whether the
// run fits on the machines. A saved plan has the time of a step on them or, if there are none, on this job's,
// which are measured.
void print_plan(const RunSetup& setup, const PlanFor& wanted, World& world, std::ostream& out);

// Prints the settings with which the run is fastest on the machines.
void print_search(const RunSetup& setup, const PlanFor& wanted, World& world, std::ostream& out);

}  // namespace flatshard
