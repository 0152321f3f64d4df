#pragma once
// The weights of a model folder, layer by layer, for forward passes. On one rank they are resident. Ranks
// that run a model together, on the same inputs, keep a shard each, and gather the units of a layer while
// this layer and the one before it compute. So a model may be larger than the memory of a device. The values
// are the same.

#include <array>
#include <memory>
#include <string>

#include "comm/world.h"
#include "hub/adapted_model.h"
#include "hub/resident_model.h"
#include "train/step/layer_units.h"
#include "train/step/memory_plan.h"

namespace flatshard {

class ModelWeights {
 public:
  // Reads the weights of a model with this config, rounded to the dtype. With a `world` of several ranks, the
  // weights are sharded over it.
  ModelWeights(const ModelSource& source, const ModelConfig& config, DType dtype, StreamSet& streams,
               Stream& compute, World* world);

  Model& model() { return resident_ ? resident_->model() : sharded_->model; }
  const Model& model() const { return resident_ ? resident_->model() : sharded_->model; }
  int64_t bytes() const { return resident_ ? resident_->bytes() : sharded_->memory.peak(); }

  // Consecutive layers of a pass. The first of them reads `input`; each writes its output into one of two
  // buffers, which are large enough for that of any layer. `next` follows, or kNoLayer: it is gathered in the
  // meantime.
  struct Layers {
    int first, end, next;
    RowCounts rows;
    Tensor input;
    std::array<Tensor, 2> buffers;
  };
  // Runs the layers, and returns the output of the last. On a planning stream weights have no memory.
  Tensor forward(LayerCall& c, const Layers& layers);
  // Runs the head, which ends a pass.
  void head(LayerCall& c, const Tensor& x);

 private:
  // The parameters of a layer, valid until it is released. `next` is the layer that follows in the pass.
  ParamView acquire(int layer, int next, Stream& stream);
  void release(int layer, int next, Stream& stream);

  struct OwnedCommunicators {
    OwnedCommunicators(World& world, Device device);
    Communicators refs() const { return {*compute, *gather, *reduce, *replicas}; }
    std::unique_ptr<Communicator> compute, gather, reduce, replicas;
  };
  // The parts of a sharded model. It is constructed twice, on planned and on committed memory.
  struct Sharded {
    Sharded(const ModelConfig& config, DType dtype, Device device, World& world);
    void construct(DType dtype);
    void plan();

    MemoryPlan memory;
    OwnedCommunicators communicators;
    Model model;
    std::unique_ptr<LayerUnits> units;
    ParamTensors shapes;  // tensors without memory
  };

  std::unique_ptr<ResidentModel> resident_;
  std::unique_ptr<Sharded> sharded_;
  Stream* gather_ = nullptr;
};

}  // namespace flatshard
