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

struct TrainState;

inline constexpr int64_t kStretches = 512;
inline constexpr size_t kMostHistoryLines = 2 * kStretches;

// The line of the next data_step.
void add_line(std::vector<StepMetrics>& history, const StepMetrics& line);

// What metrics.jsonl of a run begins with that goes on from a checkpoint: what the checkpoint remembers, and
// every line up to it of the file at `path`, that of the run which wrote it. Where there is no such file, or
// it is damaged or of another run, which is logged, what the checkpoint remembers.
std::vector<StepMetrics> lines_before(const TrainState& checkpoint, const std::string& path);

}  // namespace flatshard
