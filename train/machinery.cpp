#include "train/machinery.h"

#include "train/start_up.h"

namespace flatshard {
namespace {

RunPlan plan_on(MemoryPlan& memory, const RunSetup& setup, Communicators comms) {
  StreamGroup planning(setup.device, {.planning = true});
  Engine engine(setup, comms, memory, planning);
  engine.plan();
  return {.setup_text = describe_setup(setup, engine.model()),
          .memory_table = memory.table(),
          .memory_bytes = memory.peak(),
          .flops = flops_per_token(engine.model(), setup.seq_len())};
}

}  // namespace

Machinery::Machinery(const RunSetup& setup, World& world, const MachineryOptions& options)
    : gather_(make_communicator(world)),
      reduce_(make_communicator(world)),
      memory_(setup.device),
      streams_(setup.device, {.order = options.order, .trace = options.trace}),
      plan_(plan_on(memory_, setup, {*gather_, *reduce_})) {
  memory_.commit(options.commit);
  engine_.emplace(setup, Communicators{*gather_, *reduce_}, memory_, streams_);
}

RunPlan plan_run(const RunSetup& setup, World& world) {
  const auto gather = make_communicator(world), reduce = make_communicator(world);
  MemoryPlan memory(setup.device);
  return plan_on(memory, setup, {*gather, *reduce});
}

}  // namespace flatshard
