#include <algorithm>
#include <utility>

#include "runtime/memory.h"
#include "train/step/engine.h"

namespace flatshard {

template <class Take>
void Engine::measure(const Data& data, int64_t batch_index, bool has_answers, Take&& take) {
  const ArenaScope scope(memory_.batch), staging(memory_.staging);
  const int64_t B = setup_.eval_sequences, S = setup_.seq_len();
  LaneInputs inputs(setup_, B, memory_, has_answers);
  const Mirror losses(memory_.staging, memory_.batch.alloc(DType::f32, {B * S}));
  set_target_weights(1);
  inputs.read(data, batch_index, data_rank(), compute_);
  LayerCall c = call(inputs, losses.device, memory_.activations);
  forward_only(c, inputs.rows(), setup_.most_rows(B));
  losses.download(compute_);
  compute_.sync();
  if (has_losses()) take(inputs, losses.host);
}

// A sequence's loss does not depend on which rank computes it or on the rest of its batch.
std::vector<SequenceLoss> Engine::evaluate(const Data& data, int64_t batch_index, double baseline) {
  const int64_t S = setup_.seq_len();
  std::vector<SequenceLoss> result(static_cast<size_t>(setup_.eval_sequences), SequenceLoss{0, 0});
  measure(data, batch_index, true, [&](const LaneInputs& inputs, const Tensor& losses) {
    const int32_t* targets = inputs.host_targets().as<int32_t>();
    for (int64_t row = 0; row < std::ssize(result); ++row) {
      SequenceLoss& sequence = result[static_cast<size_t>(row)];
      for (int64_t t = row * S; t < (row + 1) * S; ++t) {
        sequence.sum += static_cast<double>(losses.as<float>()[t]);
        sequence.targets += targets[t] >= 0 ? 1 : 0;
      }
      if (setup_.config.loss.is_used())
        sequence.answers = sums_of_sequence(inputs, losses, row,
                                            {.mean = 1, .sft = 0, .baseline = static_cast<float>(baseline)});
    }
  });
  return result;
}

// Computes the losses of all lanes that read_batches() read.
void Engine::measure_lanes() {
  for (size_t lane = 0; lane < inputs_.size(); ++lane) {
    LayerCall c = call(inputs_[lane], losses_of(lane), memory_.activations);
    forward_only(c, inputs_[lane].rows(), setup_.most_rows(setup_.batching.lane_sequences));
  }
  losses_.download(compute_);
}

std::vector<double> Engine::gains(const Data& data, int64_t data_step) {
  read_batches(data, data_step);
  set_target_weights(1);
  measure_lanes();
  compute_.sync();
  std::vector<double> gains(inputs_.size());
  for (size_t lane = 0; lane < inputs_.size() && has_losses(); ++lane)
    for (int64_t row = 0; row < setup_.batching.lane_sequences; ++row)
      gains[lane] += sums_of_sequence(inputs_[lane], host_losses_of(lane), row, {.mean = 1}).gain_of_others;
  return gains;
}

std::vector<float> Engine::target_losses(const Data& data, int64_t batch_index) {
  std::vector<float> all(static_cast<size_t>(setup_.eval_sequences * setup_.seq_len()));
  measure(data, batch_index, false, [&](const LaneInputs&, const Tensor& losses) {
    std::copy_n(losses.as<float>(), losses.size(), all.begin());
  });
  return all;
}

namespace {

// The output of a layer, in a buffer for the output of any layer.
struct Activations : PipeBuffer {
  Tensor room, tensor;
};

}  // namespace

// Runs these layers; the first one reads `input`. If another layer follows, the stage of that layer gets the
// result in `output`, unless that is empty. Two alternating buffers suffice: nothing is saved for a backward
// pass. A message is received into the buffer that was sent last, which receive() waits for.
void Engine::forward_only(LayerCall& c, const RowCounts& rows, const RowCounts& most,
                          const LayerRange& layers, const Tensor& input, const Tensor& output) {
  const ArenaScope scope(memory_.activations);
  begins_step_ = false;
  const auto takes_message = [&](int at) {
    if (at > setup_.pipeline.last_chunk()) return false;
    const int first = setup_.pipeline.chunks[static_cast<size_t>(at)].first;
    return layers.first < first && first <= layers.end;
  };
  Activations x, y;
  for (Activations* buffer : {&x, &y})
    buffer->room =
        memory_.activations.alloc(setup_.compute, model_.largest_output(layers.first, layers.end, most));
  x.tensor = input;
  for (int at = 0; at <= setup_.pipeline.last_chunk(); ++at) {
    const Chunk& chunk = setup_.pipeline.chunks[static_cast<size_t>(at)];
    if (chunk.stage != stage()) continue;
    if (takes_message(at)) {
      x.tensor = x.room.beginning(model_.output(chunk.first - 1, rows));
      pipe_.receive(activations_from(at - 1), stage_of(at - 1), x, {x.tensor});
      pipe_.wait_arrived(compute_, x);
    }
    const int end = std::min(chunk.end, layers.end);
    for (int i = std::max(chunk.first, layers.first); i < end; ++i) {
      const ArenaScope layer(memory_.activations);
      units_.prefetch(i, gather_);
      for (int next = i + 1; next <= i + setup_.config.parallel.depth && next < end; ++next)
        units_.prefetch(next, gather_);
      y.tensor = y.room.beginning(model_.output(i, rows));
      if (i + 1 == model_.layer_count() && !c.logits.empty())  // only the last rows have logits
        x.tensor = x.tensor.slice(rows.tokens - c.logits.shape[0], rows.tokens);
      model_.layer(i).forward(c, units_.acquire(i, compute_), y.tensor, x.tensor);
      units_.release(i, i + 1 < end ? i + 1 : kNoLayer, compute_);
      std::swap(x, y);
    }
    if (takes_message(at + 1)) pipe_.send(activations_from(at), stage_of(at + 1), compute_, x, {x.tensor});
    if (!output.empty() && chunk.first <= layers.end && layers.end < chunk.end)
      copy(compute_, output, x.tensor);
  }
  for (Activations* buffer : {&x, &y}) pipe_.wait_sent(compute_, *buffer);
}

}  // namespace flatshard
