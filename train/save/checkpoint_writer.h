#pragma once
// The checkpoints of a run as its loop writes them: between which steps parts of the work are done, what is
// said of each, and what becomes of an Error (checkpoint.on_error).

#include <functional>

#include "train/report/progress.h"
#include "train/save/saver.h"
#include "train/step/machinery.h"

namespace flatshard {

class CheckpointWriter {
 public:
  CheckpointWriter(const RunSetup& setup, Checkpoints& checkpoints, Machinery& machinery, World& world,
                   Progress& progress);

  // What there is to do between two steps.
  struct Work {
    std::function<TrainState()> begin{};  // a checkpoint of this state, where there is one
    bool last = false;                    // no step follows
    bool threads_idle = false;            // no rank's thread was busy in the last step
  };
  // Called by all ranks after each step, whose line tells of what was saved.
  void between_steps(StepMetrics& m, const Work& work);
  // Whether this rank's thread is at work.
  bool busy() const { return saver_.busy(); }

  // Of a run that fails: what was in flight is finished, where the other ranks fail as well; of one that
  // waits for this rank in a collective nothing can be had, and the checkpoint is lost. An Error is a
  // warning.
  void finish_failing();

 private:
  void or_give_up(const std::function<void()>& part);
  void tell(const std::optional<Saver::Saved>& saved, StepMetrics& m);

  const RunSetup& setup_;
  bool staged_;
  World& world_;
  Progress& progress_;
  Saver saver_;
};

}  // namespace flatshard
