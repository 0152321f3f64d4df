#pragma once
// The time of a step as the simulator sees it before the first one, beside the time that the steps take.

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
  int64_t steps;  // that the run makes
  const FlopsPerToken& flops;
  MatrixPeak& peak;  // raised to the rate of the fastest product that is timed on a CPU
  const Bandwidth& bandwidth;
};

class StepPrediction {
 public:
  // Collective. Measures what is not known of a CPU, and on rank 0 simulates a step on the machines of the
  // run. There is no prediction for a run that takes a few seconds, on a GPU whose published figures are not
  // known, and on the CPU for a model that reads images.
  StepPrediction(const RunSetup& setup, World& world, const PredictedFrom& from);

  // Of a step in seconds; known to rank 0.
  std::optional<double> seconds() const { return seconds_; }
  // The timeline of the simulated step, if it is known.
  std::optional<SimulatedTrace> timeline(const RunSetup& setup) const;

  bool has_begun() const { return is_warm_; }
  // After every step. The first one does not count: it touches its memory for the first time.
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
