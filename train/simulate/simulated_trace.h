#pragma once
// The timeline of a simulated step, as a traced run records one: rows of streams with ops and exchanges,
// waits of the compute stream, passes around the work of layers, and a row of steps.

#include <memory>
#include <string>
#include <vector>

#include "runtime/trace.h"
#include "train/simulate/simulated_step.h"

namespace flatshard {

struct SimulatedTrace {
  std::vector<std::unique_ptr<Trace>> ranks;  // first rank of each pipeline stage
  std::string what;                           // names the ranks, and the shown part of a long step
};

SimulatedTrace simulated_trace(const RunSetup& setup, const Cluster& cluster);

}  // namespace flatshard
