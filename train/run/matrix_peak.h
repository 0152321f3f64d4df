#pragma once
// The rates of matrix products that MFU refers to: measured at startup, and published by the GPU's maker.

#include <string>

#include "comm/world.h"
#include "train/measure/flops.h"
#include "train/report/metrics.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// In floating-point operations per second, of all ranks together.
struct MatrixPeak {
  double measured = 0;
  double published = 0;  // 0: not known, or ranks may share a GPU
  std::string gpu{};     // "NVIDIA H200"; "" on the CPU

  // Sets the utilization of a step that trains so many tokens per second.
  void set_mfu(StepMetrics& m, double tokens_per_second, const FlopsPerToken& flops) const;
};

// To be called by all ranks, before the run allocates its memory: the measurement takes some of the device.
MatrixPeak find_matrix_peak(const RunSetup& setup, World& world);

// "measured matrix peak 780000 GFLOP/s, 79% of the published peak of NVIDIA H200"
std::string describe(const MatrixPeak& peak);

}  // namespace flatshard
