// One optimizer step, from tokens to updated weights, drawn here with sharded parameters and prefetching.
// G: gather of a unit's parameters, F, B: forward and backward pass of a stage, R: reduction, U: update.
//
//   gather  G0 G1  G2      G1  G0                  G0
//   compute    F0  F1  F2  B2  B1  B0    norm U0 U1 U2  F0
//   reduce                     R2  R1  R0
//
// A rank works on `lanes` micro-batches at a time, stage by stage, micro_steps times; then all ranks update
// their shards together. Sums over lanes, ranks and micro-steps are exact: see comm/sharded_unit.h.

#include <algorithm>

#include "runtime/memory.h"
#include "train/step/engine.h"

namespace flatshard {

StepResult Engine::step(const Data& data, const StepOrder& order) {
  read_batches(data, order.data_step);
  set_target_weights(order.loss_scale / static_cast<double>(order.targets));
  // Not in the first step: libraries allocate at their first call, which a capture does not allow.
  const bool by_graph = setup_.uses_graphs() && has_stepped_;
  for (int64_t micro = 0; micro < setup_.batching.micro_steps; ++micro)
    by_graph ? accumulate_by_graph(micro) : accumulate(micro);
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

// Accumulates the gradients of one micro-step.
void Engine::accumulate(int64_t micro) {
  const ArenaScope scope(memory_.activations);
  const Shape shape{lane_tokens(), setup_.model.hidden};
  for (Lane& lane : lanes_) {
    lane.x.resize(static_cast<size_t>(model_.stage_count()));
    for (size_t i = 1; i < lane.x.size(); ++i) lane.x[i] = memory_.activations.alloc(setup_.compute, shape);
    lane.dx = memory_.activations.alloc(setup_.compute, shape);
  }
  forward(micro);
  backward(micro);
}

// A replay does not update the host-side state of the units. That is safe because micro-steps are replayed in
// the order of their capture, and the units are in the same state at the end of every step.
void Engine::accumulate_by_graph(int64_t micro) {
  const size_t at = static_cast<size_t>(micro);
  if (graphs_.size() == at) graphs_.emplace_back(streams_, [&] { accumulate(micro); });
  graphs_[at].launch();
}

// Omits the last stage, whose backward pass also computes the losses.
void Engine::forward(int64_t micro) {
  for (int i = 0; i < model_.stage_count() - 1; ++i) {
    const size_t at = static_cast<size_t>(i);
    units_.prefetch(i, gather_);
    if (setup_.config.parallel.forward_prefetch) gather_ahead(i, 1);
    const ParamView p = units_.acquire(i, compute_);
    const TraceSpan span = compute_.span("forward", i);
    marks_[at] = memory_.activations.mark();
    for (int lane = 0; lane < setup_.batching.lanes; ++lane) {
      Context c = context_of(micro, lane);
      const std::vector<Tensor>& x = lanes_[static_cast<size_t>(lane)].x;
      model_.stage(i, lane).forward(c, p, x[at + 1], x[at]);
      if (setup_.config.train.recompute) memory_.activations.rewind(marks_[at]);
    }
    units_.release(i, i + 1, compute_);
  }
}

void Engine::backward(int64_t micro) {
  const int last = model_.stage_count() - 1, first = wrapping().first_trained_stage();
  const bool recompute = setup_.config.train.recompute;
  const std::string& ahead = setup_.config.parallel.backward_prefetch;
  marks_[static_cast<size_t>(last)] = memory_.activations.mark();
  for (int i = last; i >= first; --i) {
    const size_t at = static_cast<size_t>(i);
    units_.prefetch(i, gather_);
    const ParamView p = units_.acquire(i, compute_);
    const TraceSpan span = compute_.span("backward", i);
    if (ahead == "pre") gather_ahead(i, -1);  // before this stage's reduction
    for (int lane = 0; lane < setup_.batching.lanes; ++lane) {
      Context c = context_of(micro, lane);
      const Lane& l = lanes_[static_cast<size_t>(lane)];
      c.input_gradient = i > first;
      const GradView g = units_.grads(i, compute_, lane);
      if (recompute && i < last) model_.stage(i, lane).forward(c, p, l.x[at + 1], l.x[at]);
      model_.stage(i, lane).backward(c, p, g, l.dx, l.x[at]);
      if (recompute) memory_.activations.rewind(marks_[at]);
    }
    memory_.activations.rewind(marks_[at]);
    units_.release(i, i > first ? i - 1 : kNoStage, compute_);
    if (ahead == "post") gather_ahead(i, -1);
    units_.reduce(i, compute_, reduce_, micro);  // sums over ranks while stage i - 1 computes
  }
}

// Prefetches the parameters of the next stages while this stage computes.
void Engine::gather_ahead(int stage, int direction) {
  for (int distance = 1; distance <= setup_.config.parallel.depth; ++distance) {
    const int next = stage + direction * distance;
    if (next < (direction < 0 ? wrapping().first_trained_stage() : 0) || next >= model_.stage_count()) return;
    units_.prefetch(next, gather_);
  }
}

// Reads all lanes of this rank; their buffers stay unchanged until the end of the step.
void Engine::read_batches(const Data& data, int64_t data_step) {
  const Batching& b = setup_.batching;
  for (int64_t local = 0; local < local_lanes(); ++local) {
    const size_t at = static_cast<size_t>(local);
    const int64_t lane = lane_of(setup_.units, setup_.groups, rank_, local / b.lanes, local % b.lanes);
    batches_[at] = read_batch(data, data_step, lane, inputs_[at], lane_tokens());
    draws_[at].step = static_cast<uint64_t>(data_step * b.ranks * local_lanes() + lane);
  }
}

Context Engine::context_of(int64_t micro, int lane) {
  const size_t at = static_cast<size_t>(micro * setup_.batching.lanes + lane);
  Context c = context(batches_[at], losses_of(at));
  c.dropout = draws_[at];
  return c;
}

Context Engine::context(const Batch& batch, const Tensor& losses) {
  return {.stream = compute_,
          .scratch = memory_.scratch,
          .saved = memory_.activations,
          .tokens = batch.tokens,
          .positions = batch.positions,
          .boundaries = batch.boundaries,
          .targets = batch.targets,
          .target_weights = target_weights_.slice(0, batch.tokens.size()),
          .losses = losses,
          .dtype = setup_.compute,
          .tf32 = setup_.config.precision.tf32};
}

std::span<const double> Engine::sum_losses() {
  const float* losses = losses_.host.as<float>();
  for (double& lane : lane_losses_) {
    lane = 0;
    for (int64_t i = 0; i < lane_tokens(); ++i) lane += static_cast<double>(*losses++);
  }
  return lane_losses_;
}

// Later micro-steps need no more memory than the first ones, so only those are planned.
void Engine::plan_step() {
  for (int64_t micro = 0; micro < std::min(kPlannedMicroSteps, setup_.batching.micro_steps); ++micro)
    accumulate(micro);
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
  Context c = context(batch_in(space.device, tokens), losses.device);
  forward_only(c);
}

}  // namespace flatshard
