#pragma once
// The time of an optimizer step on a GPU of which only published figures are known. It assumes that matrix
// products reach half of the published peak, and memory and links four fifths of their rates.

#include "train/plan/gpu_models.h"
#include "train/step/training_runtime.h"

namespace flatshard {

struct StepEstimate {
  double products = 0;  // forward and backward passes, recomputation included
  double exchange = 0;  // between ranks, while the passes run
  double transfer = 0;  // between host and GPU, while the passes run
  double update = 0;    // of the parameters, by the GPU or, with offload, by the host

  double seconds() const;
};

StepEstimate estimate_step(const RunSetup& setup, const RunPlan& plan, const GpuModel& gpu);

// "2.41 s per step, ...", one line and one that names the assumptions.
std::string describe_estimate(const StepEstimate& estimate, const RunSetup& setup, const GpuModel& gpu);

}  // namespace flatshard
