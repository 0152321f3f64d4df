#include "train/engine.h"

#include <algorithm>

#include "train/param_groups.h"

namespace flatshard {
namespace {

Model grouped_model(const RunSetup& setup, Arena& tables) {
  Model model(setup.model, tables, static_cast<int>(setup.batching.lanes));
  apply_groups(model, setup.config.trainable, setup.config.optimizer.no_decay);
  return model;
}

std::vector<UnitRole> roles_of(const Model& model) {
  std::vector<UnitRole> roles(model.units().size());
  const int last = model.stage_count() - 1;
  for (int i = 0; i <= last; ++i) {
    const int unit = model.unit_of(i);
    UnitRole& role = roles[static_cast<size_t>(unit)];
    role.stages = role.index == unit && i > 0 && unit == model.unit_of(0) ? role.stages + 1 : 1;
    role.index = unit;
    role.root = role.root || i == 0 || i == last;
  }
  return roles;
}

std::vector<ShardedUnit> make_units(const RunSetup& setup, const Model& model,
                                    const std::vector<UnitRole>& roles, Communicators comms,
                                    MemoryPlan& memory, GatherRoom& gather_room,
                                    GradientRoom& gradient_room) {
  std::vector<ShardedUnit> units;
  for (const UnitRole& role : roles)
    units.emplace_back(model.units()[static_cast<size_t>(role.index)], role, comms, setup.units,
                       memory.units(), gather_room, gradient_room);
  return units;
}

}  // namespace

Engine::Engine(const RunSetup& setup, int rank, Communicators comms, MemoryPlan& memory, StreamGroup& streams)
    : setup_(setup),
      rank_(rank),
      memory_(memory),
      streams_(streams),
      compute_(streams.add("compute")),
      gather_(streams.add("gather", StreamRole::comm)),
      reduce_(streams.add("reduce", StreamRole::comm)),
      model_(grouped_model(setup, memory.tables)),
      roles_(roles_of(model_)),
      gather_room_(model_.units(), roles_, setup.groups, setup.units, memory.units()),
      gradient_room_(model_.units(), roles_, setup.groups, setup.units, memory.units()),
      units_(make_units(setup, model_, roles_, comms, memory, gather_room_, gradient_room_)),
      optimizer_(setup.config.optimizer, units_, comms.compute, memory.gradients),
      lanes_(static_cast<size_t>(setup.batching.lanes)),
      marks_(static_cast<size_t>(model_.stage_count())),
      lane_losses_(static_cast<size_t>(local_lanes())) {
  while (!unit(first_trained_stage_).has_gradients()) ++first_trained_stage_;
  const int64_t widest = std::max(setup.batching.lane_sequences, setup.eval_sequences) * setup.seq_len();
  weights_ = memory.batch.alloc(DType::f32, {widest});
  for (int64_t lane = 0; lane < local_lanes(); ++lane) {
    spaces_.push_back(batch_space(setup.batching.lane_sequences));
    losses_.push_back(memory.batch.alloc(DType::f32, {lane_tokens()}));
  }
  batches_ = spaces_;
}

void Engine::initialise() {
  model_.fill_tables(compute_);
  for (ShardedUnit& u : units_)
    u.initialise(compute_, gather_, static_cast<uint64_t>(setup_.config.run.seed));
  streams_.sync_all();
}

Batch Engine::batch_space(int64_t sequences) {
  const int64_t N = sequences * setup_.seq_len();
  const int64_t most_documents = setup_.mask_documents() ? N : sequences;
  const auto ints = [&](int64_t n) { return memory_.batch.alloc(DType::i32, {n}); };
  return {
      .tokens = ints(N), .positions = ints(N), .targets = ints(N), .boundaries = ints(most_documents + 1)};
}

}  // namespace flatshard
