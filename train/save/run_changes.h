#pragma once
// What a run that resumes may change. Every other setting decides what the checkpoint contains, or the order
// of what is left to do, and a run that changes it is refused.

#include <map>
#include <string>
#include <vector>

#include "text/data/data.h"
#include "train/save/train_state.h"

namespace flatshard {

struct ResumeChanges {
  std::vector<RunChange> changes;  // that affect what steps compute
  std::vector<std::string> notes;  // other differences and their consequences, one line each
  // Whether the sequences of data.train, or their order, are not the ones of the checkpoint; and whether the
  // reason is only that it names other files.
  bool new_order = false, other_files_only = false;
};

// Replaces fingerprints in the form of earlier versions by those of now. `earlier` has both of all inputs.
void update_fingerprints(TrainState& saved, const std::map<std::string, std::string>& earlier);

// Compares the run that resumes with the state of its checkpoint. An Error if something differs that must
// not; it names every such key with both values and the reason.
ResumeChanges compare_runs(const TrainState& saved, const TrainState& now);

// Where the data continue: at the next sequence, whatever the batch size is. With a new order the epoch that
// the checkpoint is in begins again.
DataPosition data_position(const TrainState& saved, const ResumeChanges& changes);
// The same for each file of data.train. A file that the checkpoint knows by its content continues where it
// was, whatever the other files are, if its sequences are the same ones; otherwise its epoch begins again.
// Others begin at their first. Empty if there was one file, and is.
std::vector<SourcePosition> source_positions(const TrainState& saved, const TrainState& now,
                                             const ResumeChanges& changes);

// "changed since step 500: optimizer.lr 0.0003 -> 0.0001"
std::string describe(const RunChange& change);

// The changes as comments for a config file.
std::string history_comment(const std::vector<RunChange>& changes);

// The lines of a run's header about the checkpoint that it resumes from: the changes, and, if they move the
// learning rate, its value in the next step.
std::string describe_resumed(const std::string& checkpoint, const TrainState& saved,
                             const ResumeChanges& changes, double next_rate);

}  // namespace flatshard
