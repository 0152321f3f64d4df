#pragma once
// Writes checkpoints while training continues. A save begins between two steps and pauses training only to
// copy the shards (staging.h). From the copy, one thread per rank writes, checksums and syncs the rank's
// ranges. That thread does not communicate: each step's losses carry a flag whether it is busy. After the
// first step in which no rank's thread is busy, the ranks exchange errors and checksums, and rank 0's thread
// commits. A later exchange tells all ranks that the checkpoint is complete.
//
//   step      |  N  |copy|  N+1  |  N+2  |exchange|  N+3  |exchange|  N+4
//   thread               | write and sync  |      | commit |
//
// Without a copy the training thread does the same work in finish().

#include <functional>
#include <future>
#include <memory>
#include <optional>

#include "train/save/checkpoints.h"
#include "train/step/staging.h"

namespace flatshard {

// Call begin(), advance() and finish() on all ranks; they succeed, or throw the same Error, on all of them.
// After an Error no save is in flight, and the earlier checkpoints are unchanged.
class Saver {
 public:
  // Without staging, call finish() after each begin().
  Saver(Checkpoints& checkpoints, Engine& engine, Staging* staging, World& world);
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  struct Saved {
    int64_t step;
    int64_t bytes;   // bytes written by all ranks
    double seconds;  // time of writing, on the slowest rank, and of committing
    double paused;   // seconds for which training paused
    double copying;  // the part of `paused` spent in begin()
  };

  // Call between steps, with no save in flight. Does nothing if this step's checkpoint already exists.
  void begin(TrainState state);
  bool in_flight() const { return save_ != nullptr; }
  // The best of the checkpoints, including the one in flight.
  std::optional<TrainState::Evaluated> best() const;
  // Whether this rank's thread is running. If no rank's is, advance() does not block.
  bool busy() const;
  // Runs the next part of the save in flight; returns a value once the checkpoint is complete.
  std::optional<Saved> advance();
  // Calls advance() until no save is in flight.
  std::optional<Saved> finish();

 private:
  struct Save;
  struct Part;

  void open_all(bool create);
  void write();
  void start(std::function<void()> work);
  void begin_commit();
  void drop_on_error(const std::function<void()>& part);
  bool leads() const { return world_.rank() == 0; }

  Checkpoints& checkpoints_;
  Engine& engine_;
  Staging* staging_;
  World& world_;
  std::unique_ptr<Save> save_;
  // The thread's work, which returns its seconds. The last member, so that its destructor waits before the
  // others run.
  std::future<double> work_;
};

}  // namespace flatshard
