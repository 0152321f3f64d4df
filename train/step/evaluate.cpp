// Evaluation: the loss of every sequence, summed in double over its targets. A sequence's loss does not
// depend on which rank computes it or on the rest of its batch.

#include <utility>

#include "train/step/engine.h"

namespace flatshard {

std::vector<SequenceLoss> Engine::evaluate(const Data& data, int64_t batch_index) {
  const ArenaScope scope(memory_.batch), staging(memory_.staging);
  const int64_t B = setup_.eval_sequences, S = setup_.seq_len();
  const Mirror space = batch_space(B);
  const Mirror losses(memory_.staging, memory_.batch.alloc(DType::f32, {B * S}));
  set_target_weights(1);
  Context c = context(read_batch(data, batch_index, rank_, space, B * S), losses.device);
  forward_only(c);
  losses.download(compute_);
  compute_.sync();

  const int32_t* targets = batch_in(space.host, B * S).targets.as<int32_t>();
  std::vector<SequenceLoss> result;
  for (int64_t row = 0; row < B; ++row) {
    SequenceLoss sequence{0, 0};
    for (int64_t t = row * S; t < (row + 1) * S; ++t) {
      sequence.sum += static_cast<double>(losses.host.as<float>()[t]);
      sequence.targets += targets[t] >= 0 ? 1 : 0;
    }
    result.push_back(sequence);
  }
  return result;
}

// Two alternating buffers suffice: nothing is saved for a backward pass.
void Engine::forward_only(Context& c) {
  const ArenaScope scope(memory_.activations);
  const Shape shape{c.tokens.size(), setup_.model.hidden};
  Tensor x = memory_.activations.alloc(setup_.compute, shape),
         y = memory_.activations.alloc(setup_.compute, shape);
  for (int i = 0; i < model_.stage_count(); ++i) {
    const ArenaScope stage(memory_.activations);
    units_.prefetch(i, gather_);
    gather_ahead(i, 1);
    model_.stage(i).forward(c, units_.acquire(i, compute_), y, x);
    units_.release(i, i + 1 < model_.stage_count() ? i + 1 : kNoStage, compute_);
    std::swap(x, y);
  }
}

}  // namespace flatshard
