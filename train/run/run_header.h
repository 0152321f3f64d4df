#pragma once
// What a run prints before its first step, or with --plan instead of training.

#include <iosfwd>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/measure/bandwidth.h"
#include "train/run/matrix_peak.h"
#include "train/step/training_runtime.h"

namespace flatshard {

struct RunHeader {
  const RunSetup& setup;
  const RunPlan& plan;
  const MatrixPeak& peak;
  Bandwidth bandwidth;
  int64_t steps;
  const std::vector<std::string>& replaced;   // of the config (LoadedConfig)
  std::string hosts, weights, data, resumed;  // lines, lines, a description, lines
};

// About a dozen lines, or with all details: a table of the communication units and one of the memory.
std::string describe_run(const RunHeader& run, bool details);

struct PlanFor {
  int ranks = 0;      // 0: those of this job
  std::string gpu{};  // a model; empty: none
};

// For `train --plan`: prints model, batch, FLOPs per token, communication units with their traffic, and
// memory; and whether that fits on the GPU. Reads no training data and allocates no memory for the run.
void print_plan(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out);

}  // namespace flatshard
