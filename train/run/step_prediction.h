#pragma once
// The time of a step as the simulator predicts it before the first one, beside the measured time of the
// steps.

#include <optional>
#include <string>

#include "comm/world.h"
#include "train/measure/bandwidth.h"
#include "train/report/run_curves.h"
#include "train/run/matrix_peak.h"
#include "train/setup/run_setup.h"
#include "train/simulate/cluster.h"
#include "train/simulate/simulated_trace.h"

namespace flatshard {

struct PredictedFrom {
  int64_t steps;  // steps that the run makes
  const FlopsPerToken& flops;
  MatrixPeak& peak;  // raised to the rate of the fastest product that is timed on a CPU
  const Bandwidth& bandwidth;
};

class StepPrediction {
 public:
  // Collective. Measures the rates that are not known (measured_machines.h), and on rank 0 simulates a step
  // on the machines of the run. There is no prediction for a run that takes a few seconds, on a GPU whose
  // published figures are not known, and on the CPU for a model that reads images.
  StepPrediction(const RunSetup& setup, World& world, const PredictedFrom& from);

  // The predicted time of a step; only rank 0 has it.
  std::optional<double> seconds() const { return seconds_; }
  // The timeline of the simulated step, if it is known.
  std::optional<SimulatedTrace> timeline(const RunSetup& setup) const;

  bool has_begun() const { return is_warm_; }
  // Call it after every step. The first step does not count: it touches its memory for the first time.
  void add(const StepMetrics& m);
  // "time      predicted 1.23 s, measured 1.30 s a step": the median of the steps. Without a prediction, or
  // after the first step only, "".
  std::string line() const;

 private:
  std::optional<Cluster> machines_;
  std::optional<double> seconds_;
  bool is_warm_ = false;
  SampledMedian measured_;
};

}  // namespace flatshard
