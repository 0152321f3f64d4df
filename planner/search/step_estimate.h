#pragma once
// The simulated time of a step as text: its length, its parts, and the rates that it assumes.

#include <string>

#include "planner/simulate/simulated_step.h"
#include "train/step/training_runtime.h"

namespace flatshard {

// The sources of the cluster's rates, in one line.
std::string describe_rates(const Cluster& cluster);

// Model FLOPs utilization: the operations of the model in a step, as a share of the matrix peak of all
// devices.
double utilization(const SimulatedStep& step, const RunSetup& setup, const RunPlan& plan,
                   const Cluster& cluster);

// Four lines: the time of a step, the parts of that time, its limit (describe_limit()), and the assumptions.
std::string describe_estimate(const SimulatedStep& step, const RunSetup& setup, const RunPlan& plan,
                              const Cluster& cluster);

// The wait or the work that takes most of a step, and a setting that shortens it: "waits for copies 410 ms:
// ...".
std::string describe_limit(const SimulatedStep& step, const RunSetup& setup);

}  // namespace flatshard
