#pragma once
// Writes checkpoints while training goes on. A save begins between two steps, which pays for a copy of the
// shards alone (staging.h); from it a thread of every rank writes this rank's ranges, sums and syncs them.
// That thread says nothing to other ranks: each step's losses carry whether it is still busy, and at the
// first step where no rank's is, the ranks exchange errors and sums, and rank 0's thread commits. One step
// later, or more, all know that the checkpoint is there.
//
//   step      |  N  |copy|  N+1  |  N+2  |exchange|  N+3  |exchange|  N+4
//   thread               | write and sync  |      | commit |
//
// Where there is no copy the same work is done by the step itself, when it waits for it.

#include <functional>
#include <future>
#include <memory>
#include <optional>

#include "train/save/checkpoints.h"
#include "train/step/staging.h"

namespace flatshard {

// begin(), advance() and finish() are called by all ranks, and succeed, or throw the same Error, on all of
// them. After an Error nothing is in flight, and the checkpoints are those from before.
class Saver {
 public:
  // Without staging begin() is to be followed by finish().
  Saver(Checkpoints& checkpoints, Engine& engine, Staging* staging, World& world);
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  struct Saved {
    int64_t step;
    int64_t bytes;   // of all ranks
    double seconds;  // of writing, on the slowest rank, and of committing
    double paid;     // seconds for which training stood still; of them
    double copying;  // those before it could go on
  };

  // Between steps, when nothing is in flight. Nothing is done where this step's checkpoint is there already.
  void begin(TrainState state);
  bool in_flight() const { return save_ != nullptr; }
  // Whether this rank's thread is at work. When no rank's is, advance() blocks nobody.
  bool busy() const;
  // The next part of what is in flight; with the last one the checkpoint is there.
  std::optional<Saved> advance();
  // Until nothing is in flight.
  std::optional<Saved> finish();

 private:
  struct Save;
  struct Part;

  void open_all(bool create);
  void write();
  void start(std::function<void()> work);
  void begin_commit();
  void or_give_up(const std::function<void()>& part);
  bool leads() const { return world_.rank() == 0; }

  Checkpoints& checkpoints_;
  Engine& engine_;
  Staging* staging_;
  World& world_;
  std::unique_ptr<Save> save_;
  std::future<double> work_;  // its seconds; the last member, for its end is waited for before the rest goes
};

}  // namespace flatshard
