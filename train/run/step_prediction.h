#pragma once
// The predicted time of a step, beside the measured time of the steps.

#include <optional>
#include <string>

#include "train/report/run_curves.h"

namespace flatshard {

class StepPrediction {
 public:
  // Nothing if no plan was saved for the run (plan/saved_plan.h).
  explicit StepPrediction(std::optional<double> seconds) : seconds_(seconds) {}

  std::optional<double> seconds() const { return seconds_; }
  bool has_begun() const { return is_warm_; }
  // Call it after every step. The first step does not count: it touches its memory for the first time.
  void add(const StepMetrics& m);
  // "time      predicted 1.23 s, measured 1.30 s a step": the median of the steps. Without a prediction, or
  // after the first step only, "".
  std::string line() const;

 private:
  std::optional<double> seconds_;
  bool is_warm_ = false;
  SampledMedian measured_;
};

}  // namespace flatshard
