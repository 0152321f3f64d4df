#pragma once
// The timeline of a simulated step, as a traced run records one: rows of streams with ops and exchanges,
// waits of the compute stream, passes around the work of layers, and a row of steps.

#include "planner/simulate/simulated_step.h"
#include "runtime/trace.h"

namespace flatshard {

// The first rank of each pipeline stage; of a long step, a few micro-steps.
StepTimeline simulated_trace(const RunSetup& setup, const Cluster& cluster);

}  // namespace flatshard
