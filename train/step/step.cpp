// One optimizer step, from tokens to updated weights, drawn here for three blocks, without embedding and
// head, with sharded parameters and prefetching.
// G: gather of a unit's parameters, F, B: forward and backward pass of a layer, R: reduction, U: update.
//
//   gather  G0 G1  G2      G1  G0               G0 G1
//   compute    F0  F1  F2  B2  B1  B0    norm U0 U1 U2 F0
//   reduce                     R2  R1  R0
//
// A rank works on `lanes` lanes at a time, layer by layer, micro_steps times. Then all ranks update their
// shards together. Sums over lanes and ranks are exact: see comm/lane_sums.h. Pipeline stages run
// the same passes in another order, with messages between them: pipeline_step.cpp.

#include <algorithm>
#include <map>
#include <numeric>

#include "model/names.h"
#include "runtime/memory.h"
#include "train/step/engine.h"

namespace flatshard {

StepResult Engine::step(const Data& data, const StepInputs& inputs) {
  read_batches(data, inputs.data_step);
  if (setup_.config.loss.is_used()) {
    const AnswerCounts& of = inputs.answers;
    factors_ =
        factors_of(setup_.config.loss, static_cast<double>(of.examples), static_cast<double>(of.tokens),
                   static_cast<double>(of.chosen_tokens), inputs.loss_scale);
    factors_.baseline = static_cast<float>(inputs.baseline);
    set_target_weights(1);
  } else {
    set_target_weights(inputs.loss_scale / static_cast<double>(inputs.targets));
  }
  set_routing(inputs.loss_scale, setup_.model.experts > 0 ? data.token_count(inputs.data_step) : 0);
  accumulate(schedule_);
  has_stepped_ = true;
  const TraceSpan span = compute_.span("update");
  update(inputs);
  compute_.sync();  // publication may still be in flight; the next step waits for it where needed
  sum_losses();
  StepResult result{.lane_losses = lane_losses_,
                    .sequence_losses = sequence_losses_,
                    .answers = answers_,
                    .expert_counts = {},
                    .router_losses = {},
                    .grad_norm = *norm_.host.as<float>(),
                    .finite = *nonfinite_.host.as<int32_t>() == 0};
  if (const Tensor& counts = expert_counts_.host; !counts.empty())
    result.expert_counts = {counts.as<int32_t>(), static_cast<size_t>(counts.size())};
  if (!routing_losses_.host.empty()) {
    sum_router_losses(inputs.loss_scale);
    result.router_losses = router_losses_;
  }
  return result;
}

void Engine::update(const StepInputs& inputs) {
  optimizer_.measure(compute_, inputs.loss_scale);  // the gradient norm, over all ranks
  optimizer_.update(compute_, inputs.lr, inputs.update,
                    [&](ShardedUnit& u) { u.publish(compute_, gather_); });
  // Gathered values would have biases that have yet to move.
  if (!moves_router_biases() || compute_.planning()) prefetch_next_step();
  for (const Mirror* result : {&losses_, &norm_, &nonfinite_}) result->download(compute_);
  for (const Mirror* of_routers : {&expert_counts_, &routing_losses_})
    if (!of_routers->device.empty()) of_routers->download(compute_);
}

void Engine::move_router_biases(std::span<const double> counts) {
  const ModelConfig& model = setup_.model;
  const auto rate = static_cast<float>(setup_.config.train.router_bias_rate);
  const int64_t experts = model.experts;
  std::map<std::string, int64_t> blocks;  // by the name of the bias
  for (int64_t block = 0; block < model.layers && !counts.empty(); ++block) {
    const ParamNames& names = param_names(model.family);
    if (model.has_experts(block)) blocks[block_prefix(names, block) + names.router_bias] = block;
    const auto of_block = counts.subspan(static_cast<size_t>(block * experts), static_cast<size_t>(experts));
    const double mean = std::accumulate(of_block.begin(), of_block.end(), 0.0) / static_cast<double>(experts);
    float* const changes = bias_changes_.host.as<float>() + block * experts;
    for (size_t e = 0; e < of_block.size(); ++e)
      changes[e] = of_block[e] > mean ? -rate : of_block[e] < mean ? rate : 0;
  }
  if (!blocks.empty()) bias_changes_.upload(compute_);
  for (ShardedUnit& unit : units())
    for (size_t i = 0; i < unit.params().specs().size() && !blocks.empty(); ++i)
      if (const auto found = blocks.find(unit.params().specs()[i].name); found != blocks.end()) {
        Mirror change;
        change.device = bias_changes_.device.slice(found->second, found->second + 1).view({experts});
        change.host = bias_changes_.host.slice(found->second, found->second + 1).view({experts});
        unit.add_to_frozen(compute_, {static_cast<int>(i)}, change);
      }
  prefetch_next_step();
}

// Computes the gradients of all micro-batches, summed over lanes and ranks.
void Engine::accumulate(const Schedule& schedule) {
  const ArenaScope scope(memory_.activations);
  buffers_.begin();
  if (setup_.pipeline.stages > 1) return accumulate_in_stages(schedule);
  // The first step is not replayed: libraries allocate at their first call, which a capture does not allow. A
  // traced step is not replayed either, since its work is timed call by call. All ranks trace the same steps,
  // and so agree on which steps are captured or replayed, as NCCL requires.
  const bool replays = setup_.uses_graphs() && has_stepped_ && !compute_.times_kernels();
  if (replays && !begins_step_) prefetch_next_step();
  for (size_t micro = 0; micro < schedule.actions.size() / 2; ++micro)
    replays ? replay_micro_step(schedule, micro) : micro_step(schedule, micro);
}

void Engine::micro_step(const Schedule& schedule, size_t micro) {
  const Pass down = schedule.pass(2 * micro), up = schedule.pass(2 * micro + 1);
  buffers_.open(down.action);
  forward(down);
  backward(up);
  buffers_.close(compute_, up.action);
}

// Each layer keeps its input, and the tensors that it saves for its backward pass; with full recomputation
// only the input. The last layer has no forward pass: its backward pass computes the losses.
void Engine::forward(const Pass& pass) {
  Arena& saved = buffers_.saved(pass.action);
  for (const Visit& visit : pass) {
    const int i = visit.layer;
    units_.prefetch(i, gather_);  // does nothing if it is gathered
    if (setup_.config.parallel.forward_prefetch) prefetch_after(visit, pass);
    const ParamView p = units_.acquire(i, compute_);  // compute waits for the gather
    const TraceSpan span = compute_.span("forward", i);
    const int64_t mark = buffers_.mark(pass.action, i) = saved.mark();
    buffers_.before_forward(compute_, pass.action, i);
    for (int lane = 0; lane < setup_.batching.lanes; ++lane) {
      LayerWork work = work_on(pass.action, i, lane);
      work.layer.forward(work.call, p, buffers_.output_of(pass.action, i, lane, work.rows), work.x);
      if (recomputes_layers()) saved.rewind(mark);
    }
    buffers_.after_forward(compute_, pass.action, i);
    units_.release(i, visit.keep_for, compute_);
  }
}

void Engine::backward(const Pass& pass) {
  const BackwardPrefetch ahead = setup_.config.parallel.backward_prefetch;
  const int last = model_.layer_count() - 1;
  Arena& saved = buffers_.saved(pass.action);
  for (const Visit& visit : pass) {
    const int i = visit.layer;
    units_.prefetch(i, gather_);
    const ParamView p = units_.acquire(i, compute_);
    const TraceSpan span = compute_.span("backward", i);
    if (ahead == BackwardPrefetch::pre) prefetch_after(visit, pass);  // comes before this layer's reduction
    if (recomputes_layers() || i == last) buffers_.mark(pass.action, i) = saved.mark();
    const int64_t mark = buffers_.mark(pass.action, i);
    buffers_.before_backward(compute_, pass.action, i);
    for (int lane = 0; lane < setup_.batching.lanes; ++lane) {
      LayerWork work = work_on(pass.action, i, lane);
      const GradView g = units_.grads(i, compute_, lane, pass.action.micro);
      if (expert_ranks_) expert_ranks_->set_lane(i, lane, pass.action.micro);
      if (recomputes_layers() && i < last) {
        work.call.repeats = true, work.call.wants_output = false;
        work.layer.forward(work.call, p, buffers_.output_of(pass.action, i, lane, work.rows), work.x);
      }
      // The gradient of the layer's output becomes that of its input, in place.
      work.layer.backward(work.call, p, g, buffers_.gradient_of(pass.action, i, lane, work.rows), work.x);
      if (recomputes_layers()) saved.rewind(mark);
    }
    saved.rewind(mark);
    buffers_.after_backward(compute_, pass.action, i);
    units_.release(i, visit.keep_for, compute_);
    if (ahead == BackwardPrefetch::post) prefetch_after(visit, pass);
    units_.reduce(i, compute_, reduce_, pass.action.micro);  // sums over ranks while layer i - 1 computes
  }
}

// Gathers the parameters of the layers that come next while this layer computes.
void Engine::prefetch_after(const Visit& visit, const Pass& pass) {
  const int64_t ahead = std::min(setup_.config.parallel.depth, pass.end_of_step - &visit - 1);
  for (int64_t i = 1; i <= ahead; ++i) units_.prefetch((&visit)[i].layer, gather_);
}

// Gathers the units that the next step, or an evaluation before it, needs first, while the other units are
// updated. Graphs contain the addresses of slots, and gather only what was not gathered when they were
// captured: every step of a run with graphs begins with the same units gathered, in the same slots.
void Engine::prefetch_next_step() {
  if (setup_.uses_graphs()) {
    for (ShardedUnit& u : units()) u.ungather(compute_);
    units_.shared().gather_slots.rewind();
  }
  begins_step_ = true;
  const std::vector<Visit>& visits = schedule_.visits;
  const size_t ahead =
      setup_.config.parallel.forward_prefetch ? static_cast<size_t>(setup_.config.parallel.depth) : 0;
  for (size_t i = 0; i < std::min(1 + ahead, visits.size()); ++i) units_.prefetch(visits[i].layer, gather_);
}

// With run.cuda_graphs a micro-step is captured once, with its exchanges over NCCL, and then replayed. A
// replay does not update the host-side state of the units. That is safe because micro-steps are replayed in
// the order of their capture, and every step begins with the units in the same state (prefetch_next_step).
// Inputs, weights of targets and the update stay outside: they change between steps. So does what the host
// waits for.
void Engine::replay_micro_step(const Schedule& schedule, size_t micro) {
  if (graphs_.size() == micro) graphs_.emplace_back(streams_, [&] { micro_step(schedule, micro); });
  const Communicators& comms = units_.shared().comms;
  comms.graph_launches();
  graphs_[micro].launch();
  comms.graph_launched(compute_);
}

}  // namespace flatshard
