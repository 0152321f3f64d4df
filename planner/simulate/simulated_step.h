#pragma once
// The time of an optimizer step before it runs: records the step of one rank of each pipeline stage, gives
// every op, exchange and copy a duration from a model of the machines, and replays them.

#include <string>
#include <vector>

#include "planner/machines/cluster.h"
#include "planner/times/op_times.h"
#include "runtime/trace.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// The parts of a step on the compute stream of the slowest stage.
struct StepParts {
  double products = 0, attention = 0, others = 0, update = 0;  // seconds of work
  // Seconds of waits for gathered parameters, sums over ranks, tokens of experts, other stages, copies from
  // and to the host, work of the host, and for the host to enqueue work.
  double gathers = 0, reductions = 0, experts = 0, stages = 0, copies = 0, host = 0, launches = 0;

  double sum() const;
};

struct SimulatedStep {
  double seconds = 0;                // time of a step if all ranks are equally fast
  double p10 = 0, p50 = 0, p90 = 0;  // quantiles of the time with jitter
  StepParts parts{};
  double exchanged = 0;  // seconds of a rank's exchanges in that stage, hidden or not
};

SimulatedStep simulate_step(const RunSetup& setup, const Cluster& cluster, const OpProfile& profile = {});

// The timeline of a simulated step, as a traced run records one: rows of streams with ops and exchanges,
// waits of the compute stream, passes around the work of layers, and a row of steps. Of the first rank of
// each pipeline stage; of a long step, a few micro-steps.
StepTimeline simulated_trace(const RunSetup& setup, const Cluster& cluster);

}  // namespace flatshard
