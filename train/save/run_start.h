#pragma once
// The position at which a run begins, its first step or the checkpoint that it resumes from; and the settings
// that it may change when it resumes. Every other setting decides the contents of the checkpoint, or the
// order of the remaining work, and a run that changes it is refused.
#include <map>
#include <string>
#include <vector>

#include "text/data/data.h"
#include "train/save/train_state.h"
#include "train/setup/batching.h"

namespace flatshard {

struct ResumeChanges {
  std::vector<RunChange> changes;  // changes that affect what steps compute
  std::vector<std::string> notes;  // other differences and their consequences, one line each
  // Whether the sequences of data.train, or their order, differ from the checkpoint's; and whether the only
  // reason is that data.train names other files.
  bool new_order = false, other_files_only = false;
};

// Replaces fingerprints in the form of earlier versions. `earlier` maps them to the current fingerprints of
// all inputs.
void update_fingerprints(TrainState& saved, const std::map<std::string, std::string>& earlier);

// Compares the run that resumes with the state of its checkpoint. An Error if something differs that must
// not; it names every such key with both values and the reason.
ResumeChanges compare_runs(const TrainState& saved, const TrainState& now);

// The position at which the data continue: the next sequence, whatever the batch size is. With a new order
// the epoch that the checkpoint is in begins again.
DataPosition data_position(const TrainState& saved, const ResumeChanges& changes);
// The position for each file of data.train. A file that the checkpoint knows by its content continues where
// it was, whatever the other files are, if its sequences are the same; otherwise its epoch begins again. A
// new file begins in its first epoch or, if the number of files is the same, in the epoch of the file that it
// replaces. Empty if the run has one file.
std::vector<SourcePosition> source_positions(const TrainState& saved, const TrainState& now,
                                             const ResumeChanges& changes);

// "changed since step 500: optimizer.lr 0.0003 -> 0.0001"
std::string describe(const RunChange& change);

// The changes as comments for a config file.
std::string history_comment(const std::vector<RunChange>& changes);

// The lines of a run's header about the checkpoint that it resumes from: the changes, if they move the
// learning rate, its value in the next step, and the steps that were computed after the checkpoint, which are
// lost.
std::string describe_resumed(const std::string& checkpoint, const TrainState& saved,
                             const ResumeChanges& changes, double next_rate,
                             const std::vector<StepMetrics>& lost);

struct RunStart {
  std::optional<TrainState> resumed;
  int64_t step = 0, total_steps = 0;
  ResumeChanges changes;           // changes relative to `resumed`
  std::vector<RunChange> history;  // all changes since the run began
};

// `now` describes the run that starts. Makes the data continue where the checkpoint, if any, stopped. An
// Error if the run cannot start or resume with this config; `source` is the checkpoint's path.
RunStart start_of(std::optional<TrainState> resumed, const std::string& source, const TrainState& now,
                  const Config& config, Data& data);

}  // namespace flatshard
