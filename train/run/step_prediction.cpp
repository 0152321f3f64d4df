#include "train/run/step_prediction.h"

#include "runtime/text.h"

namespace flatshard {

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
