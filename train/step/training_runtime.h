#pragma once
// The training runtime: an engine with its communicators, planned memory and streams. A planning pass
// constructs and runs the engine on arenas that only count; they are then committed and the engine is
// constructed again.

#include <memory>
#include <optional>

#include "comm/world.h"
#include "model/flops.h"
#include "train/step/engine.h"
#include "train/step/staging.h"
#include "train/step/unit_table.h"

namespace flatshard {

// The memory, communication and work of a run, known before anything is allocated.
struct RunPlan {
  int64_t parameters = 0, trainable = 0;
  int64_t active = 0;  // parameters that a token meets; fewer with a mixture of experts
  std::vector<MemoryRow> memory;
  int64_t memory_bytes = 0;  // sum of `memory`
  int64_t host_bytes = 0;    // the part in host memory; on a CPU, all of it
  int64_t nccl_bytes = 0;    // memory of NCCL, not in the sum: an estimate, or in a run measured
  bool nccl_is_measured = false;
  // The collectives of a step; at most the first Engine::kPlannedMicroSteps micro-steps.
  CollectiveLog schedule;
  FlopsPerToken flops{};
  UnitTable units;
  int in_flight = 1;        // micro-batches whose activations this rank keeps at once, over all its chunks
  int64_t sent_bytes = 0;   // bytes sent to other pipeline stages in a step
  std::string products{};   // choice of product algorithms; set in a run on GPUs, or in bf16 on CPUs
  std::string attention{};  // choice of attention kernels; set in a run on GPUs
  std::string transfers{};  // NCCL's way of transfer; set in a run on GPUs
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
  // The snapshot that asynchronous checkpoints are written from; null without them.
  Staging* staging() { return staging_ ? &*staging_ : nullptr; }
  // The arenas, with their current and peak use.
  const MemoryPlan& memory() const { return memory_; }
  // Appends every collective of the engine from now on to `log`; null stops it.
  void log_to(CollectiveLog* log) { communicators_.log_to(log); }

 private:
  // The communicators of an engine.
  struct OwnedCommunicators {
    OwnedCommunicators(const RunSetup& setup, int rank, World* world);  // null world: for planning only
    Communicators refs() const { return {compute.ref(), gather.ref(), reduce.ref(), replicas.ref()}; }
    void log_to(CollectiveLog* log) const;
    void reserve_workspace(Arena& pinned) const;
    // Returns the device memory that the communicators take, connected as the plan needs them.
    int64_t connect(Device device) const;
    std::string transfers() const;  // describes the transfers of registered memory
    // Registers the arenas that the ranks of a group exchange, so that they can write into one another's
    // memory.
    std::vector<std::shared_ptr<void>> register_memory(const MemoryPlan& memory) const;
    struct Group {
      RankGroup ref() const { return between ? RankGroup(*inside, *between) : RankGroup(*inside); }
      std::unique_ptr<Communicator> inside, between;  // `between` hosts: null without two levels
    };
    Group compute, gather, reduce, replicas;
    std::optional<PipeCommunicators> pipe;
    int64_t free_before = 0;  // free device memory before the communicators exist
  };
  static RunPlan plan_on(MemoryPlan& memory, const RunSetup& setup, int rank, const OwnedCommunicators& comms,
                         Recording* recording = nullptr);
  friend RunPlan plan_run(const RunSetup& setup, int rank, Recording* recording);

  OwnedCommunicators communicators_;
  MemoryPlan memory_;
  std::vector<std::shared_ptr<void>> registered_;
  StreamSet streams_;
  RunPlan plan_;
  std::optional<Engine> engine_;  // its graphs must be destroyed before the communicators (runtime/graph.h)
  std::optional<Staging> staging_;
};

// The plan of a rank alone; nothing is allocated, and no other rank is needed. A recording gets the work of a
// step (Engine::plan_step()).
RunPlan plan_run(const RunSetup& setup, int rank, Recording* recording = nullptr);

}  // namespace flatshard
