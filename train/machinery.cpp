#include "train/machinery.h"

#include "train/start_up.h"

namespace flatshard {

Machinery::Conversations::Conversations(World& world, RankGroups groups)
    : compute(make_communicator(world, groups.group_of(world.rank()))),
      gather(make_communicator(world, groups.group_of(world.rank()))),
      reduce(make_communicator(world, groups.group_of(world.rank()))),
      replicas(make_communicator(world, groups.place_of(world.rank()))) {}

RunPlan Machinery::plan_on(MemoryPlan& memory, const RunSetup& setup, int rank, Communicators comms) {
  StreamGroup planning(setup.device, {.planning = true});
  Engine engine(setup, rank, comms, memory, planning);
  engine.plan();
  return {.setup_text = describe_setup(setup, engine.model()),
          .memory_table = memory.table(),
          .memory_bytes = memory.peak(),
          .flops = flops_per_token(engine.model(), setup.seq_len())};
}

Machinery::Machinery(const RunSetup& setup, World& world, const MachineryOptions& options)
    : conversations_(world, setup.groups),
      memory_(setup.device),
      streams_(setup.device, {.order = options.order, .trace = options.trace}),
      plan_(plan_on(memory_, setup, world.rank(), conversations_.refer())) {
  memory_.commit(options.commit);
  engine_.emplace(setup, world.rank(), conversations_.refer(), memory_, streams_);
}

RunPlan plan_run(const RunSetup& setup, World& world) {
  const Machinery::Conversations conversations(world, setup.groups);
  MemoryPlan memory(setup.device);
  return Machinery::plan_on(memory, setup, world.rank(), conversations.refer());
}

}  // namespace flatshard
