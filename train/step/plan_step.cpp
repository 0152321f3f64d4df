// Runs the largest step and evaluation on planning arenas, which only count.

#include <algorithm>

#include "train/step/engine.h"

namespace flatshard {

// Later micro-steps need no more memory than the first ones, so only the first ones are planned, a multiple
// of the number of stages, unless all are in flight at once.
int64_t Engine::planned_micro_steps() const {
  const int64_t all = setup_.batching.micro_steps, S = setup_.pipeline.stages,
                most = (kPlannedMicroSteps + 2 * (S - 1)) / S * S;
  return setup_.pipeline.schedule == PipelineSchedule::gpipe ? all : std::min(all, most);
}

void Engine::plan_update() { update({.data_step = 0, .update = 1, .lr = 0, .loss_scale = 1, .targets = 1}); }

void Engine::plan_step() {
  for (const LaneInputs& inputs : inputs_) inputs.plan_read(compute_);
  set_target_weights(1);
  set_routing(1, 1);
  if (setup_.config.loss.has_baseline()) measure_lanes();
  const int64_t planned = planned_micro_steps();
  accumulate(planned == setup_.batching.micro_steps
                 ? schedule_
                 : schedule_of(setup_.pipeline, stage(), planned, whole_.first_trained_layer()));
  if (planned < setup_.batching.micro_steps)
    for (ShardedUnit& u : units()) u.plan_last_exchange(reduce_);
  {
    const TraceSpan span = compute_.span("update");
    plan_update();
  }
  if (compute_.recording()) units_.acquire(schedule_.visits.front().layer, compute_);
}

void Engine::plan_first_and_last_values() {
  initialize();
  for (ShardedUnit& u : units())
    if (u.has_gradients()) u.gather_masters(compute_);
}

void Engine::plan_evaluation() {
  if (named_files(setup_.config.data.eval).empty() && !setup_.config.loss.has_reference()) return;
  const ArenaScope scope(memory_.batch);
  const ArenaScope staging(memory_.staging);
  const int64_t tokens = setup_.eval_sequences * setup_.seq_len();
  const LaneInputs inputs(setup_, setup_.eval_sequences, memory_);
  const Mirror losses(memory_.staging, memory_.batch.alloc(DType::f32, {tokens}));
  LayerCall c = call(inputs, losses.device, memory_.activations);
  forward_only(c, inputs.rows(), inputs.rows());
}

}  // namespace flatshard
