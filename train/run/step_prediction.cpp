#include "train/run/step_prediction.h"

#include <algorithm>

#include "runtime/log.h"
#include "runtime/text.h"
#include "train/run/measured_machines.h"

namespace flatshard {
namespace {

// A run that takes no longer than a few measurements is not predicted.
constexpr double kShortSeconds = 3;

// The time of all products of the run at the rate of the largest ones.
double least_seconds(const RunSetup& setup, int64_t steps, const FlopsPerToken& flops, double peak) {
  const double tokens = static_cast<double>(setup.batching.total_sequences * setup.seq_len());
  return tokens * flops.causal * static_cast<double>(steps) / peak;
}

}  // namespace

StepPrediction::StepPrediction(const RunSetup& setup, World& world, const PredictedFrom& from) {
  if (least_seconds(setup, from.steps, from.flops, from.peak.measured) < kShortSeconds) return;
  // A prediction that fails is no reason to end a run.
  warn_on_error([&] {
    machines_ = measured_machines(setup, world, from.peak, from.bandwidth);
    if (machines_ && machines_->cpu)
      from.peak.measured = std::max(from.peak.measured, machines_->cpu->products * world.size());
    if (machines_ && world.rank() == 0) seconds_ = simulate_step(setup, *machines_).seconds;
  });
}

std::optional<SimulatedTrace> StepPrediction::timeline(const RunSetup& setup) const {
  if (!seconds_) return {};
  return simulated_trace(setup, *machines_);
}

void StepPrediction::add(const StepMetrics& m) {
  if (is_warm_ && !m.skipped) measured_.add(m.step_seconds);
  is_warm_ = true;
}

std::string StepPrediction::line() const {
  const std::optional<double> measured = measured_.value();
  if (!seconds_ || !measured) return "";
  return str("time      predicted ", human_seconds(*seconds_), ", measured ", human_seconds(*measured),
             " a step\n");
}

}  // namespace flatshard
