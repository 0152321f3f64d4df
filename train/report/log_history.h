#pragma once
// The training history that every checkpoint stores (train_state.h), so that a run resumed in another folder
// has the whole curve. The steps are divided into at most kStretches intervals of equal length, the smallest
// possible power of two; each keeps its last line and the line with the lowest evaluation loss. A short run
// keeps every line, a long one the shape of the curve and the best evaluation. The history depends only on
// the run's lines, not on where the run was stopped and resumed.

#include <string>
#include <vector>

#include "train/report/metrics.h"

namespace flatshard {

inline constexpr int64_t kStretches = 512;
inline constexpr size_t kMostHistoryLines = 2 * kStretches;

// Appends the line of the next data_step.
void add_line(std::vector<StepMetrics>& history, const StepMetrics& line);

// The first lines of metrics.jsonl for a run that resumes at `data_step`: the checkpoint's history, completed
// by the lines up to that step in the metrics file at `path` of the run that wrote the checkpoint. If that
// file is damaged or belongs to another run, a warning says so and the history alone is returned; it need not
// exist.
std::vector<StepMetrics> lines_before(const std::vector<StepMetrics>& history, int64_t data_step,
                                      const std::string& path);

// The lines of the metrics file at `path` after `data_step`, which a run that resumes there computes again.
// Empty if there is no such file, or if it is damaged.
std::vector<StepMetrics> lines_after(int64_t data_step, const std::string& path);

}  // namespace flatshard
