#pragma once
// The rates of matrix products that MFU refers to: measured at startup, and published by the GPU's maker.

#include <optional>
#include <string>

#include "comm/world.h"
#include "model/flops.h"
#include "train/report/metrics.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// Rates in floating-point operations per second, of all ranks together. A measured rate is a lower bound of
// the peak: other programs may have used the machine at the same time.
struct MatrixPeak {
  double measured = 0;   // rate measured at startup
  double reached = 0;    // rate of the fastest step so far, counting causal attention
  double published = 0;  // published peak; 0: not known, or ranks may share a GPU
  std::string gpu{};     // "NVIDIA H200"; "" on the CPU

  // Sets the utilization of a step that computes `tokens_per_second`. It refers to the measured rate, or once
  // a step has exceeded that, to the rate of the fastest step, and is marked as an upper bound. Returns lines
  // that explain this, and numbers above 100 %, where each first occurs; otherwise "".
  std::string set_mfu(StepMetrics& m, double tokens_per_second, const FlopsPerToken& flops);

  bool explained_bound = false, explained_full = false;
};

// Call on all ranks, before the run allocates its memory: the measurement takes some memory of the device. It
// is short for a run of few steps. Without `steps`, for a plan, it takes its full time.
MatrixPeak find_matrix_peak(const RunSetup& setup, World& world, std::optional<int64_t> steps = {});

// "measured matrix peak 780000 GFLOP/s, 79% of the published peak of NVIDIA H200"
std::string describe(const MatrixPeak& peak);

}  // namespace flatshard
