// One optimizer step, from tokens to updated weights, drawn here with sharded parameters and prefetching.
// G: gather of a unit's parameters, F, B: forward and backward pass of a layer, R: reduction, U: update.
//
//   gather  G0 G1  G2      G1  G0                  G0
//   compute    F0  F1  F2  B2  B1  B0    norm U0 U1 U2  F0
//   reduce                     R2  R1  R0
//
// A rank works on `lanes` micro-batches at a time, layer by layer, micro_steps times; with pipeline stages,
// on several of these in turn, in the order of its actions (train/setup/pipeline.h). Then all ranks update
// their shards together. Sums over lanes and ranks are exact: see comm/sharded_unit.h.

#include <algorithm>

#include "runtime/memory.h"
#include "train/step/engine.h"

namespace flatshard {

StepResult Engine::step(const Data& data, const StepOrder& order) {
  read_batches(data, order.data_step);
  set_target_weights(order.loss_scale / static_cast<double>(order.targets));
  const ArenaScope scope(memory_.activations);
  buffers_.begin();
  // Not in the first step: libraries allocate at their first call, which a capture does not allow.
  if (setup_.uses_graphs() && has_stepped_)
    for (int64_t micro = 0; micro < setup_.batching.micro_steps; ++micro) accumulate_by_graph(micro);
  else
    accumulate(passes_);
  has_stepped_ = true;
  const TraceSpan span = compute_.span("update");
  optimizer_.measure(compute_, order.loss_scale);
  optimizer_.update(compute_, order.lr, order.update);
  for (ShardedUnit& u : units()) u.publish(compute_, gather_);
  for (const Mirror* result : {&losses_, &norm_, &nonfinite_}) result->download(compute_);
  compute_.sync();  // publication may still be in flight; the next step waits for it where needed
  return {.lane_losses = sum_losses(),
          .grad_norm = *norm_.host.as<float>(),
          .finite = *nonfinite_.host.as<int32_t>() == 0};
}

// Executes a stage's part of a step, which accumulates gradients. Each message is received one action
// ahead.
void Engine::accumulate(const Passes& passes) {
  receive_for(passes.actions.front());
  for (size_t at = 0; at < passes.actions.size(); ++at) {
    if (at + 1 < passes.actions.size()) receive_for(passes.actions[at + 1]);
    execute(passes, at);
  }
  // What follows may use their memory.
  buffers_.each_message([&](PipeBuffer& message) { pipe_.wait_sent(compute_, message); });
}

void Engine::execute(const Passes& passes, size_t at) {
  passes.actions[at].forward ? forward(passes, at) : backward(passes, at);
}

// Graphs need a single stage, where each micro-step is a forward and a backward pass. A replay does not
// update the host-side state of the units. That is safe because micro-steps are replayed in the order of
// their capture, and the units are in the same state at the end of every step.
void Engine::accumulate_by_graph(int64_t micro) {
  const size_t at = static_cast<size_t>(micro);
  if (graphs_.size() == at)
    graphs_.emplace_back(streams_, [&] {
      execute(passes_, 2 * at);
      execute(passes_, 2 * at + 1);
    });
  graphs_[at].launch();
}

void Engine::receive_for(const Action& action) {
  if (action.forward && action.chunk > 0)
    pipe_.receive(activations_from(action.chunk - 1), stage_of(action.chunk - 1), buffers_.input(action));
  if (!action.forward && action.chunk < setup_.pipeline.last_chunk())
    pipe_.receive(gradients_to(action.chunk), stage_of(action.chunk + 1), buffers_.gradient(action));
}

void Engine::forward(const Passes& passes, size_t at) {
  const Action& action = passes.actions[at];
  const bool sends = action.chunk < setup_.pipeline.last_chunk();
  buffers_.open(action);
  if (action.chunk > 0) pipe_.wait_arrived(compute_, buffers_.input(action));
  if (sends) pipe_.wait_sent(compute_, buffers_.output(action));
  Arena& saved = buffers_.saved(action);
  for (size_t v = passes.first_visit[at]; v < passes.first_visit[at + 1]; ++v) {
    const Visit& visit = passes.visits[v];
    const int i = visit.layer;
    units_.prefetch(i, gather_);
    if (setup_.config.parallel.forward_prefetch) gather_ahead(passes, v);
    const ParamView p = units_.acquire(i, compute_);
    const TraceSpan span = compute_.span("forward", i);
    const int64_t mark = buffers_.mark(action, i) = saved.mark();
    for (int lane = 0; lane < setup_.batching.lanes; ++lane) {
      Context c = context_of(action, lane);
      model_.layer(i, buffers_.set_of(action, lane))
          .forward(c, p, buffers_.output_of(action, i, lane), buffers_.input_of(action, i, lane));
      if (setup_.config.train.recompute) saved.rewind(mark);
    }
    units_.release(i, visit.keep_for, compute_);
  }
  if (sends)
    pipe_.send(activations_from(action.chunk), stage_of(action.chunk + 1), compute_, buffers_.output(action));
  if (setup_.pipeline.trains(action.chunk, whole_.first_trained_layer())) return;
  if (action.chunk > 0) pipe_.release(compute_, buffers_.input(action));
  buffers_.close(action);
}

void Engine::backward(const Passes& passes, size_t at) {
  const Action& action = passes.actions[at];
  const int last = model_.layer_count() - 1, first = whole_.first_trained_layer();
  const bool recompute = setup_.config.train.recompute;
  const std::string& ahead = setup_.config.parallel.backward_prefetch;
  LaneTensors& gradient = buffers_.gradient(action);
  pipe_.wait_arrived(compute_, gradient);
  pipe_.wait_sent(compute_, gradient);  // the head overwrites it
  if (recompute && action.chunk < setup_.pipeline.last_chunk())
    pipe_.wait_sent(compute_, buffers_.output(action));
  Arena& saved = buffers_.saved(action);
  for (size_t v = passes.first_visit[at]; v < passes.first_visit[at + 1]; ++v) {
    const Visit& visit = passes.visits[v];
    const int i = visit.layer;
    units_.prefetch(i, gather_);
    const ParamView p = units_.acquire(i, compute_);
    const TraceSpan span = compute_.span("backward", i);
    if (ahead == "pre") gather_ahead(passes, v);  // before this layer's reduction
    if (recompute || i == last) buffers_.mark(action, i) = saved.mark();
    const int64_t mark = buffers_.mark(action, i);
    for (int lane = 0; lane < setup_.batching.lanes; ++lane) {
      Context c = context_of(action, lane);
      c.input_gradient = i > first;
      const GradView g = units_.grads(i, compute_, lane, action.micro);
      Layer& layer = model_.layer(i, buffers_.set_of(action, lane));
      const Tensor x = buffers_.input_of(action, i, lane);
      if (recompute && i < last) layer.forward(c, p, buffers_.output_of(action, i, lane), x);
      layer.backward(c, p, g, gradient.lanes[static_cast<size_t>(lane)], x);
      if (recompute) saved.rewind(mark);
    }
    saved.rewind(mark);
    units_.release(i, visit.keep_for, compute_);
    if (ahead == "post") gather_ahead(passes, v);
    units_.reduce(i, compute_, reduce_, action.micro);  // sums over ranks while layer i - 1 computes
  }
  if (sends_gradients(action))
    pipe_.send(gradients_to(action.chunk - 1), stage_of(action.chunk - 1), compute_, gradient);
  pipe_.release(compute_, gradient);
  if (action.chunk > 0) pipe_.release(compute_, buffers_.input(action));
  buffers_.close(action);
}

// Prefetches the parameters of the next layers while this layer computes.
void Engine::gather_ahead(const Passes& passes, size_t visit) {
  const auto depth = static_cast<size_t>(setup_.config.parallel.depth);
  for (size_t v = visit + 1; v <= visit + depth && v < passes.visits.size(); ++v)
    units_.prefetch(passes.visits[v].layer, gather_);
}

// Reads all lanes of this rank; their buffers stay unchanged until the end of the step.
void Engine::read_batches(const Data& data, int64_t data_step) {
  const Batching& b = setup_.batching;
  for (int64_t local = 0; local < local_lanes(); ++local) {
    const size_t at = static_cast<size_t>(local);
    const int64_t lane =
        micro_batch_of(setup_.units, setup_.groups, data_rank(), local / b.lanes, local % b.lanes);
    batches_[at] = read_batch(data, data_step, lane, inputs_[at], lane_tokens());
    draws_[at].step = static_cast<uint64_t>(data_step * b.ranks * local_lanes() + lane);
  }
}

Context Engine::context_of(const Action& action, int lane) {
  const size_t at = static_cast<size_t>(action.micro * setup_.batching.lanes + lane);
  Context c = context(batches_[at], losses_of(at), buffers_.saved(action));
  c.dropout = draws_[at];
  return c;
}

Context Engine::context(const Batch& batch, const Tensor& losses, Arena& saved) {
  return {.stream = compute_,
          .scratch = memory_.scratch,
          .saved = saved,
          .tokens = batch.tokens,
          .positions = batch.positions,
          .boundaries = batch.boundaries,
          .targets = batch.targets,
          .target_weights = target_weights_.slice(0, batch.tokens.size()),
          .losses = losses,
          .dtype = setup_.compute,
          .tf32 = setup_.config.precision.tf32,
          .head_chunk = setup_.config.train.head_chunk};
}

std::span<const double> Engine::sum_losses() {
  if (!has_losses()) return lane_losses_;
  const float* losses = losses_.host.as<float>();
  for (double& lane : lane_losses_) {
    lane = 0;
    for (int64_t i = 0; i < lane_tokens(); ++i) lane += static_cast<double>(*losses++);
  }
  return lane_losses_;
}

// Later micro-steps need no more memory than the first ones, so only those are planned, in rounds of as many
// as there are stages; unless all are in flight at once.
int64_t Engine::planned_micro_steps() const {
  const int64_t all = setup_.batching.micro_steps, S = setup_.pipeline.stages,
                most = (kPlannedMicroSteps + 2 * (S - 1)) / S * S;
  return setup_.pipeline.schedule == "gpipe" ? all : std::min(all, most);
}

void Engine::plan_step() {
  const ArenaScope scope(memory_.activations);
  buffers_.begin();
  const int64_t planned = planned_micro_steps();
  accumulate(planned == setup_.batching.micro_steps
                 ? passes_
                 : passes_of(setup_.pipeline, stage(), planned, whole_.first_trained_layer()));
  if (planned < setup_.batching.micro_steps)
    for (ShardedUnit& u : units()) u.plan_last_exchange(reduce_);
  optimizer_.measure(compute_, 1);
  for (ShardedUnit& u : units()) u.publish(compute_, gather_);
}

void Engine::plan_first_and_last_values() {
  initialize();
  for (ShardedUnit& u : units())
    if (u.has_gradients()) u.gather_masters(compute_);
}

void Engine::plan_evaluation() {
  if (setup_.config.data.eval.empty()) return;
  const ArenaScope scope(memory_.batch);
  const ArenaScope staging(memory_.staging);
  const int64_t tokens = setup_.eval_sequences * setup_.seq_len();
  const Mirror space = batch_space(setup_.eval_sequences);
  const Mirror losses(memory_.staging, memory_.batch.alloc(DType::f32, {tokens}));
  Context c = context(batch_in(space.device, tokens), losses.device, memory_.activations);
  forward_only(c);
}

}  // namespace flatshard
