#pragma once
// What `train --plan` prints.

#include <iosfwd>
#include <string>

#include "comm/world.h"
#include "train/config/config.h"

namespace flatshard {

struct PlanFor {
  int ranks = 0;      // 0: those of this job
  std::string gpu{};  // a model; empty: none
};

// Prints model, batch, FLOPs per token, communication units with their traffic, and memory; and whether that
// fits on the GPU. Reads no training data and allocates no memory for the run.
void print_plan(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out);

}  // namespace flatshard
