#pragma once
// The simulated time of a step as text: how long it takes, where the time goes, and what the rates are.

#include <string>

#include "train/simulate/simulated_step.h"
#include "train/step/training_runtime.h"

namespace flatshard {

// Of the products of a model that a step needs, at the published peak of all GPUs: model FLOPs utilization.
double utilization(const SimulatedStep& step, const RunSetup& setup, const RunPlan& plan,
                   const Cluster& cluster);

// "2.41 s per step, ...": one line, one of what the time consists of, and one that names the assumptions.
std::string describe_estimate(const SimulatedStep& step, const RunSetup& setup, const RunPlan& plan,
                              const Cluster& cluster);

// What a step waits for most, and which setting shortens that: "sums over ranks, 410 ms (...)".
std::string describe_limit(const SimulatedStep& step, const RunSetup& setup);

}  // namespace flatshard
