#include "train/step/step_buffers.h"

#include <algorithm>

namespace flatshard {

StepBuffers::StepBuffers(const Pipeline& pipeline, const Schedule& schedule, int lanes, Shape shape,
                         DType dtype, bool recompute, MemoryPlan& memory)
    : lanes_(lanes), shape_(shape), dtype_(dtype), recompute_(recompute), memory_(memory) {
  for (const Chunk& chunk : pipeline.chunks) chunks_.push_back({chunk});
  for (int at = 0; at <= pipeline.last_chunk(); ++at) {
    ChunkBuffers& chunk = chunks_[static_cast<size_t>(at)];
    const int most = in_flight(schedule.actions, at);
    if (most == 0) continue;                               // another stage's
    const bool embeds = pipeline.embeds_apart && at == 0;  // keeps nothing for its backward pass
    for (int i = 0; i < (embeds ? 1 : most); ++i) chunk.slots.push_back({static_cast<size_t>(slot_count_++)});
    in_flight_ += embeds ? 0 : most;
    const bool returns = std::any_of(schedule.actions.begin(), schedule.actions.end(),
                                     [&](const Action& a) { return a.chunk == at && !a.forward; });
    // One more than are in flight, and two gradients: the next message arrives while the last one is in use.
    if (at > 0) chunk.inputs.resize(static_cast<size_t>(most) + 1);
    if (at < pipeline.last_chunk()) chunk.outputs.resize(static_cast<size_t>(pipeline.outputs_at_once(at)));
    if (returns) chunk.gradients.resize(pipeline.stages > 1 ? 2 : 1);
  }
}

void StepBuffers::allocate(Arena& arena, LaneTensors& tensors) const {
  Tensor lane{nullptr, dtype_, shape_, arena.device()};
  const int64_t stride = (lane.bytes() + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  tensors.tensor = arena.alloc(DType::u8, {lanes_ * stride});
  tensors.lanes.clear();
  for (int i = 0; i < lanes_; ++i) {
    if (tensors.tensor.data) lane.data = tensors.tensor.as<uint8_t>() + i * stride;
    tensors.lanes.push_back(lane);
  }
}

void StepBuffers::begin() {
  each_message([&](LaneTensors& message) { allocate(memory_.activations, message); });
}

void StepBuffers::open(const Action& action) {
  Slot& slot = this->slot(action);
  const Chunk& of = chunk(action).chunk;
  slot.base = slot.arena(memory_).mark();
  slot.x.resize(static_cast<size_t>(of.end - of.first - 1));
  slot.marks.resize(static_cast<size_t>(of.end - of.first));
  for (LaneTensors& x : slot.x) allocate(slot.arena(memory_), x);
}

void StepBuffers::close(const Action& action) {
  const Slot& slot = this->slot(action);
  slot.arena(memory_).rewind(slot.base);
}

Tensor StepBuffers::input_of(const Action& action, int layer, int lane) {
  const Chunk& of = chunk(action).chunk;
  const size_t at = static_cast<size_t>(lane);
  if (layer == of.end) return output(action).lanes[at];
  if (layer > of.first) return slot(action).x[static_cast<size_t>(layer - of.first - 1)].lanes[at];
  return layer == 0 ? Tensor{} : input(action).lanes[at];
}

Tensor StepBuffers::gradient_of(const Action& action, int lane) {
  return gradient(action).lanes[static_cast<size_t>(lane)];
}

int64_t& StepBuffers::mark(const Action& action, int layer) {
  return slot(action).marks[static_cast<size_t>(layer - chunk(action).chunk.first)];
}

int StepBuffers::set_of(const Action& action, int lane) {
  return (recompute_ ? 0 : static_cast<int>(slot(action).index) * lanes_) + lane;
}

}  // namespace flatshard
