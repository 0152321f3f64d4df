#pragma once
// A planning engine for one of several ranks, with communicators that log their calls. Nothing runs and
// nothing is allocated.

#include "tests/comm/mirror_communicator.h"
#include "train/step/engine.h"
#include "train/step/unit_table.h"

namespace flatshard::test {

// The first rank of a group, on the first host.
struct MirrorGroup {
  MirrorGroup(const char* name, const Levels& levels)
      : inside(name, 0, levels.inside), between(intern(str(name, " between hosts")), 0, levels.between()) {}
  RankGroup ref() { return {inside, between}; }

  MirrorCommunicator inside, between;
};

struct PlannedRank {
  PlannedRank(const Config& config, int ranks)
      : setup(set_up(config, ranks)),
        compute("compute", setup.levels_of(0).group),
        gather("gather", setup.levels_of(0).group),
        reduce("reduce", setup.levels_of(0).group),
        replicas("replicas", setup.levels_of(0).replicas),
        pipe(setup.pipeline.stages, setup.pipeline.schedule == PipelineSchedule::interleaved,
             setup.pipeline.embeds_apart,
             [&](const char* name) {
               return std::make_unique<MirrorCommunicator>(name, 0, setup.pipeline.stages);
             }),
        memory(setup.device, setup.units.offload),
        streams(setup.device, {.planning = true}),
        engine(setup, 0, comms, pipe, memory, streams) {}

  // The log of the second of two steps. In the first step nothing has been gathered before.
  CollectiveLog second_step() {
    engine.plan_step();
    CollectiveLog log;
    comms.log_to(&log);
    engine.plan_step();
    comms.log_to(nullptr);
    return log;
  }

  UnitTable units() const {
    return unit_table(engine.wrapping(), engine.schedule(), setup, setup.levels_of(0));
  }

  RunSetup setup;
  MirrorGroup compute, gather, reduce, replicas;
  Communicators comms{compute.ref(), gather.ref(), reduce.ref(), replicas.ref()};
  PipeCommunicators pipe;
  MemoryPlan memory;
  StreamSet streams;
  Engine engine;
};

// The config of a small model, and a batch of `micro_steps` sequences per rank.
inline Config planned_config(const std::string& family, int ranks, int blocks, int micro_steps) {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = family, .layers = blocks, .hidden = 48, .heads = 3, .ffn = 93, .vocab = 301};
  c.data.seq_len = 8;
  c.train.steps = 1;
  c.train.total_batch_size = ranks * micro_steps;
  c.optimizer.lr = 1e-3;
  return c;
}

}  // namespace flatshard::test
