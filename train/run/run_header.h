#pragma once
// The header that a run prints before its first step.

#include <string>
#include <vector>

#include "train/measure/bandwidth.h"
#include "train/report/start_records.h"
#include "train/run/matrix_peak.h"
#include "train/step/training_runtime.h"

namespace flatshard {

struct RunHeader {
  const RunSetup& setup;
  const RunPlan& plan;
  const MatrixPeak& peak;
  Bandwidth bandwidth;
  int64_t steps;
  const std::vector<std::string>& replaced;  // LoadedConfig::replaced
  const StartRecord& start;
  std::string hosts, weights, data, resumed;  // lines of text; `data` is a description in one line or more
};

// About a dozen lines, or with all details: a table of the communication units and one of the memory.
std::string describe_run(const RunHeader& run, bool details);

}  // namespace flatshard
