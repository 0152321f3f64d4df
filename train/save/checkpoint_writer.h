#pragma once
// Writes checkpoints from the training loop: advances a save between steps, reports it, and handles its
// Errors as checkpoint.on_error says. Warns once if the launcher would kill the ranks before a stop request
// has ended with a checkpoint.

#include <chrono>
#include <functional>

#include "train/report/progress.h"
#include "train/save/saver.h"
#include "train/step/training_runtime.h"

namespace flatshard {

class CheckpointWriter {
 public:
  CheckpointWriter(const RunSetup& setup, Checkpoints& checkpoints, TrainingRuntime& runtime, World& world,
                   Progress& progress);

  // The work between two steps.
  struct Work {
    std::function<TrainState()> begin{};  // begins a checkpoint of the state that it returns, if set
    bool last = false;                    // no step follows: finish the save in flight
    bool threads_idle = false;            // no rank's save thread was busy in the last step
  };
  // Call on all ranks after each step; `m` gets the metrics of a finished save.
  void between_steps(StepMetrics& m, const Work& work);
  // Whether this rank's save thread is running.
  bool busy() const { return saver_.busy(); }
  // The best of the checkpoints, including one that is being written; the same on all ranks.
  std::optional<TrainState::Evaluated> best() const { return saver_.best(); }

  // What saving has cost so far (describe_pauses() in save_times.h).
  std::string costs() const;

  // Call it when the run fails: finishes the save in flight if all ranks fail. A rank that waits in a
  // collective cannot take part, and the checkpoint is lost. An Error becomes a warning.
  void finish_failing();

 private:
  void handle_error(const std::function<void()>& part);
  void tell(const std::optional<Saver::Saved>& saved, StepMetrics& m);
  void warn_if_killed_too_soon(const StepMetrics& m);

  const RunSetup& setup_;
  bool staged_;
  World& world_;
  Progress& progress_;
  Checkpoints& checkpoints_;
  Saver saver_;
  std::optional<double> seconds_until_killed_;
  int64_t saves_ = 0;
  double paused_seconds_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace flatshard
