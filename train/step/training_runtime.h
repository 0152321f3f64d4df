#pragma once
// An engine with all that it stands on: communicators, planned memory, streams. Planning comes first: the
// engine is built and run on arenas that count, then they are committed and it is built again.

#include <memory>
#include <optional>

#include "comm/world.h"
#include "train/step/engine.h"
#include "train/step/flops.h"
#include "train/step/staging.h"
#include "train/step/unit_table.h"

namespace flatshard {

// What a run will take and do, known before anything is allocated.
struct RunPlan {
  int64_t parameters = 0, trainable = 0;
  std::vector<MemoryRow> memory;
  int64_t memory_bytes = 0;  // the sum
  // What a step says to other ranks; of more than Engine::kPlannedMicroSteps micro-steps, the first ones.
  CollectiveLog schedule;
  FlopsPerToken flops{};
  UnitTable units;
};

struct TrainingRuntimeOptions {
  StreamOrder order = StreamOrder::in_order;
  Trace* trace = nullptr;
  CommitOptions commit{};
};

class TrainingRuntime {
 public:
  TrainingRuntime(const RunSetup& setup, World& world, const TrainingRuntimeOptions& options = {});

  Engine& engine() { return *engine_; }
  const RunPlan& plan() const { return plan_; }
  // Where the run saves while it goes on; otherwise null.
  Staging* staging() { return staging_ ? &*staging_ : nullptr; }
  // All that the arenas have held so far, and what they could hold at most.
  const MemoryPlan& memory() const { return memory_; }
  // Appends every collective of the engine from now on to `log`; null stops it.
  void log_to(CollectiveLog* log) { communicators_.refs().log_to(log); }

 private:
  // The four communicators of an engine.
  struct OwnedCommunicators {
    OwnedCommunicators(World& world, const RunSetup& setup, bool planning);
    Communicators refs() const { return {*compute, *gather, *reduce, *replicas}; }
    std::unique_ptr<Communicator> compute, gather, reduce, replicas;
  };
  static RunPlan plan_on(MemoryPlan& memory, const RunSetup& setup, int rank, Communicators comms);
  friend RunPlan plan_run(const RunSetup& setup, World& world);

  OwnedCommunicators communicators_;
  MemoryPlan memory_;
  StreamGroup streams_;
  RunPlan plan_;
  std::optional<Engine> engine_;
  std::optional<Staging> staging_;
};

// The plan alone; nothing is allocated.
RunPlan plan_run(const RunSetup& setup, World& world);

}  // namespace flatshard
