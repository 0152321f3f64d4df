#pragma once
// The course of a run, short enough for every checkpoint to carry it (train_state.h), so that a run which
// goes on in another folder has the whole curve. The steps so far are cut into at most kStretches stretches
// of one length, the least power of two; of each stand there the last line and the one with the lowest
// evaluation loss. So a short run keeps every line, a long one its shape and its best evaluation. What is
// kept is a function of the run's lines alone, wherever it stopped and went on.

#include <string>
#include <vector>

#include "train/report/metrics.h"

namespace flatshard {

inline constexpr int64_t kStretches = 512;
inline constexpr size_t kMostHistoryLines = 2 * kStretches;

// The line of the next data_step.
void add_line(std::vector<StepMetrics>& history, const StepMetrics& line);

// The first lines of metrics.jsonl for a run that resumes at `data_step`: the checkpoint's history, completed
// by the lines up to that step in the metrics file at `path` of the run that wrote the checkpoint. If that
// file is damaged or belongs to another run, a warning says so and the history alone is returned; it need not
// exist.
std::vector<StepMetrics> lines_before(const std::vector<StepMetrics>& history, int64_t data_step,
                                      const std::string& path);

}  // namespace flatshard
