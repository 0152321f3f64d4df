#include "train/step/step_buffers.h"

#include <algorithm>

namespace flatshard {

StepBuffers::StepBuffers(const Pipeline& pipeline, const Schedule& schedule, const Model& model,
                         int first_trained, int lanes, RowCounts most, DType dtype, Recompute recompute,
                         std::optional<CopyStreams> copies, MemoryPlan& memory)
    : model_(model),
      lanes_(lanes),
      most_(most),
      dtype_(dtype),
      recompute_(recompute),
      memory_(memory),
      first_trained_(first_trained) {
  for (const Chunk& chunk : pipeline.chunks)
    chunks_.push_back(
        {chunk, model.largest_output(std::max(chunk.first - 1, first_trained), chunk.end, most)});
  for (int at = 0; at <= pipeline.last_chunk(); ++at) {
    ChunkBuffers& chunk = chunks_[static_cast<size_t>(at)];
    const int most_at_once = in_flight(schedule.actions, at);
    if (most_at_once == 0) continue;                       // the chunk belongs to another stage
    const bool embeds = pipeline.embeds_apart && at == 0;  // it keeps nothing for its backward pass
    for (int i = 0; i < (embeds ? 1 : most_at_once); ++i)
      chunk.slots.push_back({static_cast<size_t>(slot_count_++)});
    in_flight_ += embeds ? 0 : most_at_once;
    const bool returns = std::any_of(schedule.actions.begin(), schedule.actions.end(),
                                     [&](const Action& a) { return a.chunk == at && !a.forward; });
    // There is one input more than are in flight, and there are two gradients: the next message arrives while
    // the last one is in use.
    if (at > 0) chunk.inputs.resize(static_cast<size_t>(most_at_once) + 1);
    if (at < pipeline.last_chunk()) chunk.outputs.resize(static_cast<size_t>(pipeline.outputs_at_once(at)));
    if (returns) chunk.gradients.resize(pipeline.stages > 1 ? 2 : 1);
  }
  if (!copies) return;
  const auto add = [&](std::optional<ActivationPages>& pages, int first) {
    const auto at = static_cast<size_t>(slot_count_ + first);
    pages.emplace(*copies, memory.slot(at), memory.slot(at + 1), memory.stored);
  };
  add(input_pages_, 0);
  if (recompute == Recompute::except_attention) add(kept_pages_, 2);
}

void StepBuffers::allocate(Arena& arena, LaneTensors& tensors, const Shape& most) const {
  Tensor lane{nullptr, dtype_, most, arena.device()};
  const int64_t stride = (lane.bytes() + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  const Tensor memory = arena.alloc(DType::u8, {lanes_ * stride});
  tensors.lanes.clear();
  for (int i = 0; i < lanes_; ++i) {
    if (memory.data) lane.data = memory.as<uint8_t>() + i * stride;
    tensors.lanes.push_back(lane);
  }
}

void StepBuffers::begin() {
  for (ChunkBuffers& c : chunks_) {
    for (LaneTensors& message : c.inputs)
      allocate(memory_.activations, message, model_.output(c.chunk.first - 1, most_));
    for (LaneTensors& message : c.outputs)
      allocate(memory_.activations, message, model_.output(c.chunk.end - 1, most_));
    for (LaneTensors& message : c.gradients) allocate(memory_.activations, message, c.gradient);
  }
  for (auto* pages : {&input_pages_, &kept_pages_})
    if (*pages) (*pages)->begin();
}

Message StepBuffers::message_between(int chunk, const LaneTensors& buffer) const {
  const Shape crossing = model_.output(chunks_[static_cast<size_t>(chunk)].chunk.end - 1, most_);
  Message message;
  for (const Tensor& lane : buffer.lanes) message.push_back(lane.beginning(crossing));
  return message;
}

void StepBuffers::open(const Action& action) {
  Slot& slot = this->slot(action);
  const Chunk& of = chunk(action).chunk;
  slot.base = slot.arena(memory_).mark();
  if (recompute_ == Recompute::except_attention && !kept_pages_) kept_arena(action).rewind(0);
  slot.x.resize(static_cast<size_t>(of.end - of.first - 1));
  slot.marks.resize(static_cast<size_t>(of.end - of.first));
  if (input_pages_) return;  // before_forward() allocates them
  int layer = of.first;
  for (LaneTensors& x : slot.x) allocate(slot.arena(memory_), x, model_.output(layer++, most_));
}

// The input of the next layer is written by this one, and is on its way to host memory while that one runs.
void StepBuffers::before_forward(Stream& compute, const Action& action, int layer) {
  if (input_pages_ && layer + 1 < chunk(action).chunk.end)
    allocate(input_pages_->claim(compute, key(action, layer + 1)), x(action, layer + 1),
             model_.output(layer, most_));
  if (kept_pages_) kept_pages_->claim(compute, key(action, layer));
}

void StepBuffers::after_forward(Stream& compute, const Action& action, int layer) {
  if (input_pages_ && layer + 1 < chunk(action).chunk.end && layer + 1 >= first_trained_)
    input_pages_->store(compute, key(action, layer + 1));
  if (input_pages_) input_pages_->release(compute, key(action, layer));
  if (kept_pages_ && layer >= first_trained_) kept_pages_->store(compute, key(action, layer));
}

// Those of the layer below arrive while this one runs.
void StepBuffers::before_backward(Stream& compute, const Action& action, int layer) {
  for (auto* pages : {&input_pages_, &kept_pages_}) {
    if (!*pages) continue;
    (*pages)->fetch(key(action, layer));
    (*pages)->fetch(key(action, layer - 1));
    (*pages)->use(compute, key(action, layer));
  }
}

void StepBuffers::after_backward(Stream& compute, const Action& action, int layer) {
  for (auto* pages : {&input_pages_, &kept_pages_})
    if (*pages) (*pages)->release(compute, key(action, layer));
}

void StepBuffers::close(Stream& compute, const Action& action) {
  for (auto* pages : {&input_pages_, &kept_pages_})
    if (*pages) (*pages)->finish(compute);
  const Slot& slot = this->slot(action);
  slot.arena(memory_).rewind(slot.base);
}

Tensor StepBuffers::input_of(const Action& action, int layer, int lane, const RowCounts& rows) {
  if (layer == 0) return {};
  const Chunk& of = chunk(action).chunk;
  const LaneTensors& tensors = layer == of.end     ? output(action)
                               : layer == of.first ? input(action)
                                                   : x(action, layer);
  return tensors.lanes[static_cast<size_t>(lane)].beginning(model_.output(layer - 1, rows));
}

Tensor StepBuffers::gradient_of(const Action& action, int layer, int lane, const RowCounts& rows) {
  return gradient(action).lanes[static_cast<size_t>(lane)].beginning(model_.output(layer, rows));
}

int64_t& StepBuffers::mark(const Action& action, int layer) {
  return slot(action).marks[static_cast<size_t>(layer - chunk(action).chunk.first)];
}

int StepBuffers::set_of(const Action& action, int lane) {
  return (recompute_ == Recompute::full ? 0 : static_cast<int>(slot(action).index) * lanes_) + lane;
}

}  // namespace flatshard
