#include "train/step/training_runtime.h"

#include <algorithm>

#include "comm/agreement.h"
#include "kernels/gemm.h"
#include "model/param_selection.h"
#include "runtime/gpu.h"
#include "runtime/host_memory.h"
#include "runtime/recording.h"
#include "runtime/text.h"
#include "train/measure/kernel_choice.h"

namespace flatshard {
namespace {

// A checkpoint saved on a signal is the run's last and needs no snapshot: nothing changes afterwards. A
// checkpoint by the clock is too rare to reserve memory for it.
bool saves_from_copy(const RunSetup& setup) {
  return setup.config.checkpoint.async && saves_by_steps(setup.config.checkpoint);
}

// Linux overcommits and would kill the run on first use. All ranks check before any of them allocates.
void check_host_memory(int64_t bytes, World& world) {
  const int64_t available = available_host_bytes(), ranks = world.local_size();
  check(bytes <= available / ranks, "out of host memory: the run needs ", human_bytes(bytes),
        ranks > 1 ? str(" for each of the ", ranks, " ranks on this machine") : "", ", but only ",
        human_bytes(available), " are available; train --plan shows what uses it");
  require_address_space(bytes, "the arenas of the run");
  world.barrier("the memory check");
}

MemoryPlan memory_plan_of(const RunSetup& setup) {
  return MemoryPlan(setup.device, setup.units.offload, setup.transport == Transport::nccl);
}

// Ranks that use different transports would wait for one another forever.
void agree_on_transport(World& world, const RunSetup& setup) {
  const char* const transport = setup.transport == Transport::nccl     ? "nccl"
                                : setup.transport == Transport::staged ? "mpi, through host memory"
                                                                       : "mpi";
  agree(world,
        str("run.device = ", setup.device.is_cuda() ? "cuda" : "cpu", "\nparallel.transport = ", transport,
            '\n'),
        "the transport",
        "all ranks must compute on the same kind of device: see whether that host shows its ranks a GPU "
        "(nvidia-smi -L), or set run.device and parallel.transport");
}

}  // namespace

TrainingRuntime::OwnedCommunicators::OwnedCommunicators(const RunSetup& setup, int rank, World* world) {
  if (world) {
    agree_on_transport(*world, setup);
    select_gpu(setup.device);
    free_before = free_gpu_bytes(setup.device);
  }
  const Pipeline& pipeline = setup.pipeline;
  const int stage = setup.stage_of(rank), data_rank = setup.data_rank(rank);
  const auto make = [&](const char* name, int color, int member, int size) {
    return world ? make_communicator(*world, name, color, setup.transport, setup.device)
                 : make_planning_communicator(name, member, size, setup.transport);
  };
  // A communicator has the color of its first rank.
  const bool in_two_levels = setup.uses_two_levels();
  const auto make_group = [&](const char* name, const char* between, const std::vector<int>& members,
                              const Levels& levels) {
    const int member = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
    const int place = member % levels.inside, host = member / levels.inside;
    Group made;
    made.inside = make(name, members[static_cast<size_t>(member - place)], place, levels.inside);
    if (in_two_levels)
      made.between =
          make(intern(str(name, between)), members[static_cast<size_t>(place)], host, levels.between());
    return made;
  };
  const RankLevels levels = setup.levels_of(rank);
  const std::vector<int> group = setup.group_of(rank);
  const char* const between = setup.expert_ranks > 1 ? " between expert groups" : " between hosts";
  compute = make_group("compute", between, group, levels.group);
  gather = make_group("gather", between, group, levels.group);
  reduce = make_group("reduce", between, group, levels.group);
  replicas = make_group("replicas", " between hosts", setup.replicas_of(rank), levels.replicas);
  pipe.emplace(pipeline.stages, pipeline.schedule == PipelineSchedule::interleaved, pipeline.embeds_apart,
               [&](const char* name) { return make(name, data_rank, stage, pipeline.stages); });
}

int64_t TrainingRuntime::OwnedCommunicators::connect(Device device) const {
  StreamSet streams(device);
  Stream& stream = streams.add("connect", StreamRole::comm);
  refs().connect(stream);
  pipe->connect(stream);
  return std::max<int64_t>(0, free_before - free_gpu_bytes(device));
}

std::string TrainingRuntime::OwnedCommunicators::transfers() const {
  for (const Group* group : {&gather, &reduce, &replicas})
    if (const std::string how = group->ref().transfers(); !how.empty()) return how;
  return "";
}

std::vector<std::shared_ptr<void>> TrainingRuntime::OwnedCommunicators::register_memory(
    const MemoryPlan& memory) const {
  std::vector<std::shared_ptr<void>> registered;
  const auto share = [&](const Group& group, std::initializer_list<const Arena*> arenas) {
    for (const Arena* arena : arenas)
      for (std::shared_ptr<void>& part : group.ref().register_memory(arena->block()))
        registered.push_back(std::move(part));
  };
  share(gather, {&memory.gathered, &memory.parameters});
  share(reduce, {&memory.exchange, &memory.gradients});
  share(replicas, {&memory.exchange, &memory.gradients});
  return registered;
}

void TrainingRuntime::OwnedCommunicators::log_to(CollectiveLog* log) const {
  refs().log_to(log);
  pipe->log_to(log);
}

void TrainingRuntime::OwnedCommunicators::reserve_workspace(Arena& pinned) const {
  refs().reserve_workspace(pinned);
  pipe->reserve_workspace(pinned);
}

RunPlan TrainingRuntime::plan_on(MemoryPlan& memory, const RunSetup& setup, int rank,
                                 const OwnedCommunicators& comms, Recording* recording) {
  choose_kernels(setup);
  StreamSet planning(setup.device, {.planning = true, .recording = recording});
  Engine engine(setup, rank, comms.refs(), *comms.pipe, memory, planning);
  if (saves_from_copy(setup)) Staging(engine, memory.staging);
  if (recording) {
    recording->pause(true);
    engine.plan_update();  // the update of the step before
    recording->pause(false);
  }
  CollectiveLog schedule;
  comms.log_to(&schedule);
  engine.plan_step();
  comms.log_to(nullptr);
  if (recording) recording->pause(true);
  const int64_t sent =
      sum_of(schedule, [](const Collective& c) { return std::string_view(c.verb) == "send"; }).bytes /
      engine.planned_micro_steps() * setup.batching.micro_steps;
  engine.plan_evaluation();
  engine.plan_samples();
  engine.plan_first_and_last_values();
  comms.reserve_workspace(memory.transport);
  return {
      .parameters = engine.model().parameter_count(),
      .trainable = trainable_count(engine.model()),
      .active = engine.model().active_parameter_count(),
      .memory = memory.rows(),
      .memory_bytes = memory.peak(),
      .host_bytes = memory.on_host(),
      .nccl_bytes = comms.refs().library_bytes(setup.transport) + comms.pipe->library_bytes(setup.transport),
      .schedule = std::move(schedule),
      .flops = flops_per_token(engine.model(), setup.seq_len()),
      .units = unit_table(engine.wrapping(), engine.schedule(), setup, setup.levels_of(rank)),
      .in_flight = engine.most_in_flight(),
      .sent_bytes = sent};
}

TrainingRuntime::TrainingRuntime(const RunSetup& setup, World& world, const TrainingRuntimeOptions& options)
    : communicators_(setup, world.rank(), &world),
      memory_(memory_plan_of(setup)),
      streams_(setup.device, {.order = options.order, .trace = options.trace}),
      plan_(plan_on(memory_, setup, world.rank(), communicators_)) {
  agree_on_schedule(world, plan_.schedule, world.rank() - setup.data_rank(world.rank()));
  check_host_memory(memory_.on_host(), world);
  plan_.products = choose_products(setup, world);
  plan_.attention = describe_attention(setup);
  if (setup.transport == Transport::nccl) {
    plan_.nccl_bytes = communicators_.connect(setup.device);
    plan_.nccl_is_measured = true;
  }
  memory_.commit(options.commit);
  registered_ = communicators_.register_memory(memory_);
  if (const std::string how = communicators_.transfers(); !how.empty())
    plan_.transfers = str(how, "; its buffers take ", human_bytes(plan_.nccl_bytes));
  prepare_gemm(setup.device);
  engine_.emplace(setup, world.rank(), communicators_.refs(), *communicators_.pipe, memory_, streams_);
  communicators_.reserve_workspace(memory_.transport);
  if (saves_from_copy(setup)) staging_.emplace(*engine_, memory_.staging);
}

RunPlan plan_run(const RunSetup& setup, int rank, Recording* recording) {
  const TrainingRuntime::OwnedCommunicators communicators(setup, rank, nullptr);
  MemoryPlan memory = memory_plan_of(setup);
  return TrainingRuntime::plan_on(memory, setup, rank, communicators, recording);
}

}  // namespace flatshard
