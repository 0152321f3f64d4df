// The inputs of passes: batches of tokens, and a layer's work on one of them. Their results: losses.

#include <algorithm>
#include <array>

#include "kernels/init.h"
#include "runtime/memory.h"
#include "runtime/targets.h"
#include "train/step/engine.h"

namespace flatshard {

// Reads all lanes of this rank; their buffers stay unchanged until the end of the step.
void Engine::read_batches(const Data& data, int64_t data_step) {
  const Batching& b = setup_.batching;
  for (int64_t local = 0; local < local_lanes(); ++local) {
    const size_t at = static_cast<size_t>(local);
    const int64_t lane =
        lane_part_of(setup_.units, setup_.groups, data_rank(), local / b.lanes, local % b.lanes);
    inputs_[at].read(data, data_step, lane, compute_);
    draws_[at].step = static_cast<uint64_t>(data_step * b.ranks * local_lanes() + lane);
  }
}

void Engine::set_target_weights(double value) {
  init_param(compute_, {.y = target_weights_,
                        .init = Init::constant(static_cast<float>(value)),
                        .random = RandomStream(0, "weights")});
}

// Begins the counts of a step. The losses are means over its tokens, without padding. The one that balances
// experts is that of each micro-batch of a lane, which has all of it: f = counts / (blocks * its tokens).
void Engine::set_routing(double loss_scale, int64_t tokens) {
  const ModelConfig& model = setup_.model;
  if (model.experts == 0) return;
  zero(compute_, expert_counts_.device);
  if (routing_factors_.device.empty()) return;
  const auto blocks = static_cast<double>(model.expert_blocks()), E = static_cast<double>(model.experts),
             all = std::max(1.0, static_cast<double>(tokens));
  if (!compute_.planning())
    for (size_t lane = 0; lane < inputs_.size(); ++lane) {
      const Tensor targets = inputs_[lane].host_targets();
      const auto* const first = targets.as<int32_t>();
      const auto padding = std::count(first, first + targets.size(), kPaddingTarget);
      const double of_lane = std::max(1.0, static_cast<double>(targets.size() - padding));
      float* const factors = routing_factors_.host.as<float>() + 2 * lane;
      factors[0] =
          static_cast<float>(loss_scale * setup_.router_aux_loss() * E / (blocks * all) / (blocks * of_lane));
      factors[1] = static_cast<float>(loss_scale * setup_.config.train.router_z_loss / all);
    }
  routing_factors_.upload(compute_);
  zero(compute_, routing_losses_.device);
}

// A layer's work on one lane of a micro-batch.
Engine::LayerWork Engine::work_on(const Action& action, int layer, int lane) {
  const size_t at = static_cast<size_t>(action.micro * setup_.batching.lanes + lane);
  const LaneInputs& inputs = inputs_[at];
  LayerWork work{.layer = model_.layer(layer, buffers_.set_of(action, lane)),
                 .call = call(inputs, losses_of(at), buffers_.saved(action)),
                 .rows = inputs.rows(),
                 .x = buffers_.input_of(action, layer, lane, inputs.rows())};
  work.call.kept = buffers_.kept(action, layer);
  if (setup_.config.loss.is_used()) work.call.answers = inputs.answers(factors_);
  work.call.dropout = draws_[at];
  const auto of_lane = [at = static_cast<int64_t>(at)](const Tensor& all) {
    return all.empty() ? all : all.slice(at, at + 1).view({all.shape[1]});
  };
  work.call.routing = {.step_counts = expert_counts_.device,
                       .counts = of_lane(lane_counts_),
                       .factors = of_lane(routing_factors_.device),
                       .in_turn = setup_.config.run.balanced_routing};
  if (const Tensor& losses = routing_losses_.device; !losses.empty())
    work.call.routing.losses =
        losses.slice(static_cast<int64_t>(at), static_cast<int64_t>(at) + 1).view({losses.shape[1], 2});
  work.call.input_gradient = layer > whole_.first_trained_layer();
  return work;
}

LayerCall Engine::call(const LaneInputs& inputs, const Tensor& losses, Arena& saved) {
  LayerCall c = call(inputs.batch(), losses, saved);
  c.images = inputs.images();
  return c;
}

LayerCall Engine::call(const Batch& batch, const Tensor& losses, Arena& saved) {
  return {.stream = compute_,
          .scratch = memory_.scratch,
          .saved = saved,
          .tokens = batch.tokens,
          .positions = batch.positions,
          .boundaries = batch.boundaries,
          .targets = batch.targets,
          .target_weights = target_weights_.slice(0, batch.targets.size()),
          .losses = losses,
          .dtype = setup_.compute,
          .tf32 = setup_.config.precision.tf32,
          .head_chunk = setup_.head_chunk(),
          .recomputes_ops = setup_.config.train.recompute == Recompute::selective,
          .tile = setup_.config.train.tile,
          .expert_exchange = expert_ranks_ ? &*expert_ranks_ : nullptr};
}

void Engine::sum_losses() {
  if (!has_losses()) return;
  const int64_t rows = setup_.batching.lane_sequences, S = setup_.seq_len();
  size_t sequence = 0;
  for (size_t lane = 0; lane < lane_losses_.size(); ++lane) {
    const Tensor losses = host_losses_of(lane);
    lane_losses_[lane] = 0;
    for (int64_t row = 0; row < rows; ++row, ++sequence) {
      double& sum = sequence_losses_[sequence];
      sum = 0;
      if (setup_.config.loss.is_used()) {
        answers_[sequence] = sums_of_sequence(inputs_[lane], losses, row, factors_);
        sum = answers_[sequence].loss;
        lane_losses_[lane] += sum;
        continue;
      }
      for (int64_t t = row * S; t < (row + 1) * S; ++t) {
        const auto loss = static_cast<double>(losses.as<float>()[t]);
        lane_losses_[lane] += loss;
        sum += loss;
      }
    }
  }
}

void Engine::sum_router_losses(double loss_scale) {
  const std::array weights{setup_.router_aux_loss(), setup_.config.train.router_z_loss};
  const Tensor& losses = routing_losses_.host;  // (lanes, tokens, 2)
  router_losses_.assign(static_cast<size_t>(2 * losses.shape[0]), 0);
  const auto* next = losses.as<float>();
  for (size_t lane = 0; lane < router_losses_.size(); lane += 2)
    for (int64_t token = 0; token < losses.shape[1]; ++token)
      for (size_t i = 0; i < weights.size(); ++i)
        router_losses_[lane + i] +=
            static_cast<double>(*next++) / (weights[i] > 0 ? loss_scale * weights[i] : 1);
}

AnswerSums Engine::sums_of_sequence(const LaneInputs& inputs, const Tensor& losses, int64_t row,
                                    const AnswerFactors& factors) const {
  const int64_t S = setup_.seq_len();
  return sums_of_answers({.dnll = losses,  // sums_of_answers() does not write it
                          .nll = losses,
                          .targets = inputs.host_targets(),
                          .inputs = inputs.host_answers(factors),
                          .first = row * S,
                          .end = (row + 1) * S});
}

}  // namespace flatshard
