#pragma once
// The activations and their gradients in a step of one stage: the inputs of layers, which last from a
// micro-batch's forward pass through a chunk to its backward pass, with everything that layers save, and the
// messages to and from other stages. Each micro-batch in flight has a slot, an arena of its own; messages
// are in the base of the arena `activations`, in rings by micro-batch.

#include <optional>
#include <vector>

#include "comm/pipe.h"
#include "model/model.h"
#include "train/setup/pipeline.h"
#include "train/step/activation_pages.h"
#include "train/step/memory_plan.h"

namespace flatshard {

// A tensor for each lane of a micro-batch, with space for the most rows that a lane can have.
struct LaneTensors : PipeBuffer {
  std::vector<Tensor> lanes;
};

class StepBuffers {
 public:
  // A lane has at most the rows `most`; no layer before `first_trained` has a backward pass. If whole blocks
  // are recomputed, slots hold inputs only, and what kept() returns; with `copies` both are in host memory
  // between the passes. The model must outlive the buffers.
  StepBuffers(const Pipeline& pipeline, const Schedule& schedule, const Model& model, int first_trained,
              int lanes, RowCounts most, DType dtype, Recompute recompute, std::optional<CopyStreams> copies,
              MemoryPlan& memory);

  // The number of sets of layers that a lane needs.
  int slots() const { return recompute_ == Recompute::full ? 1 : slot_count_; }
  // The most micro-batches in flight, over all chunks of the stage.
  int most_in_flight() const { return in_flight_; }
  // Allocates the rings. The arena `activations` is rewound after the step.
  void begin();
  // The slot of an action's micro-batch: allocated before its forward pass, free after its last pass.
  void open(const Action& action);
  void close(Stream& compute, const Action& action);
  // To be called around the passes of each layer, in their order.
  void before_forward(Stream& compute, const Action& action, int layer);
  void after_forward(Stream& compute, const Action& action, int layer);
  void before_backward(Stream& compute, const Action& action, int layer);
  void after_backward(Stream& compute, const Action& action, int layer);

  // The input or output of a layer in a lane with these rows; of layer 0 the input is empty.
  Tensor input_of(const Action& action, int layer, int lane, const RowCounts& rows);
  Tensor output_of(const Action& action, int layer, int lane, const RowCounts& rows) {
    return input_of(action, layer + 1, lane, rows);
  }
  // The gradient of a layer's output, which the layer replaces with that of its input.
  Tensor gradient_of(const Action& action, int layer, int lane, const RowCounts& rows);
  // The messages of an action's micro-batch: into and out of the chunk, and the gradient.
  LaneTensors& input(const Action& a) { return ring(chunk(a).inputs, a); }
  LaneTensors& output(const Action& a) { return ring(chunk(a).outputs, a); }
  LaneTensors& gradient(const Action& a) { return ring(chunk(a).gradients, a); }
  // The message between a chunk and the next one, forward or back, in a buffer of either: the chunk's output
  // of each lane, or its gradient, with the most rows. Gradient buffers differ between chunks, since each has
  // space for any layer of its chunk; messages do not.
  Message message_between(int chunk, const LaneTensors& buffer) const;
  template <class Visit>
  void each_buffer(Visit&& visit) {
    for (ChunkBuffers& c : chunks_)
      for (auto* ring : {&c.inputs, &c.outputs, &c.gradients})
        for (LaneTensors& buffer : *ring) visit(buffer);
  }

  // The arena in which the layers of an action save tensors, and the offset at which a layer's tensors begin.
  Arena& saved(const Action& action) {
    return repeats_blocks(recompute_) ? memory_.activations : slot(action).arena(memory_);
  }
  // The arena of what a layer keeps from a forward pass until it is repeated; null: only inputs are.
  Arena* kept(const Action& action, int layer) {
    if (recompute_ != Recompute::except_attention) return nullptr;
    return kept_pages_ ? &kept_pages_->page(key(action, layer)) : &kept_arena(action);
  }
  int64_t& mark(const Action& action, int layer);
  // The index of the set of layers for a lane of the action's micro-batch.
  int set_of(const Action& action, int lane);

 private:
  struct Slot {
    size_t index;                  // index among all slots
    int64_t base = 0;              // begin of the slot in its arena
    std::vector<LaneTensors> x{};  // inputs of the chunk's layers after the first
    std::vector<int64_t> marks{};  // mark() of each layer of the chunk
    Arena& arena(MemoryPlan& memory) const { return memory.slot(index); }
  };
  struct ChunkBuffers {
    Chunk chunk;
    Shape gradient{};  // largest gradient of its layers and of its input
    std::vector<LaneTensors> inputs{}, outputs{}, gradients{};  // rings by micro-batch
    std::vector<Slot> slots{};
  };
  ChunkBuffers& chunk(const Action& a) { return chunks_[static_cast<size_t>(a.chunk)]; }
  Slot& slot(const Action& a) { return ring(chunk(a).slots, a); }
  template <class T>
  static T& ring(std::vector<T>& ring, const Action& a) {
    return ring[static_cast<size_t>(a.micro) % ring.size()];
  }
  void allocate(Arena& arena, LaneTensors& tensors, const Shape& most) const;
  // A slot's arena for kept(), apart from saved(), which each layer rewinds.
  Arena& kept_arena(const Action& action) {
    return memory_.slot(static_cast<size_t>(slot_count_) + slot(action).index);
  }
  ActivationPages::Key key(const Action& action, int layer) { return {slot(action).index, layer}; }
  LaneTensors& x(const Action& action, int layer) {
    return slot(action).x[static_cast<size_t>(layer - chunk(action).chunk.first - 1)];
  }

  const Model& model_;
  int lanes_;
  RowCounts most_;
  DType dtype_;
  Recompute recompute_;
  MemoryPlan& memory_;
  std::vector<ChunkBuffers> chunks_;  // buffers of each chunk; empty for chunks of other stages
  int slot_count_ = 0, in_flight_ = 0;
  int first_trained_;
  std::optional<ActivationPages> input_pages_, kept_pages_;  // with offload
};

}  // namespace flatshard
