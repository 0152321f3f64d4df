#include "tools/inference/model_weights.h"

#include "build_config.h"
#include "comm/gpu_place.h"

namespace flatshard {
namespace {

Transport transport_on(Device device, World& world) {
  const bool own_gpus = place_on_gpu(world).shared.empty();
  if (!device.is_cuda()) return Transport::host;
  return kNcclBuilt && own_gpus ? Transport::nccl : Transport::staged;
}

// Nothing is trained, so a unit has neither masters nor gradients.
Model frozen_model(const ModelConfig& config, Arena& tables) {
  Model model(config, tables);
  for (ParamList& list : model.param_lists())
    for (ParamSpec& spec : list.specs()) spec.trainable = false;
  return model;
}

ParamTensors shapes_of(const Model& model, DType dtype) {
  ParamTensors shapes;
  for (const ParamList& list : model.param_lists()) {
    std::vector<Tensor>& tensors = shapes.emplace_back();
    for (const ParamSpec& spec : list.specs())
      tensors.push_back({nullptr, spec.dtype.value_or(dtype), spec.shape, {}});
  }
  return shapes;
}

}  // namespace

ModelWeights::OwnedCommunicators::OwnedCommunicators(World& world, Device device) {
  const Transport transport = transport_on(device, world);
  compute = make_communicator(world, "compute", 0, transport, device);
  gather = make_communicator(world, "gather", 0, transport, device);
  reduce = make_communicator(world, "reduce", 0, transport, device);
  replicas = make_communicator(world, "replicas", world.rank(), transport, device);
}

ModelWeights::Sharded::Sharded(const ModelConfig& config, DType dtype, Device device, World& world)
    : memory(device), communicators(world, device), model(frozen_model(config, memory.tables)) {
  construct(dtype);
  plan();
  communicators.refs().reserve_workspace(memory.transport);
  memory.commit();
  model = frozen_model(config, memory.tables);
  construct(dtype);
  communicators.refs().reserve_workspace(memory.transport);
  shapes = shapes_of(model, dtype);
}

void ModelWeights::Sharded::construct(DType dtype) {
  const UnitOptions options{
      .policy = shard_policy(Strategy::full_shard), .compute = dtype, .keep_root = false};
  units = std::make_unique<LayerUnits>(Wrapping(model, {}), communicators.refs(), options, memory.units(),
                                       std::nullopt);
}

// Plans every collective once, for the workspace of the communicators.
void ModelWeights::Sharded::plan() {
  StreamSet planning(memory.tables.device(), {.planning = true});
  Stream &compute = planning.add("compute"), &gather = planning.add("gather", StreamRole::comm);
  const auto nothing = [](Stream&, const ParamSpec&, int64_t, const Tensor&) {};
  for (ShardedUnit& unit : units->all()) unit.initialize(compute, gather, nothing);
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    units->prefetch(layer, gather);
    units->acquire(layer, compute);
    units->release(layer, layer + 1 < model.layer_count() ? layer + 1 : kNoLayer, compute);
  }
}

ModelWeights::ModelWeights(const ModelSource& source, const ModelConfig& config, DType dtype,
                           StreamSet& streams, Stream& compute, World* world) {
  if (!world || world->size() == 1) {
    resident_ = std::make_unique<ResidentModel>(config, dtype, compute);
    read_model_weights(source, resident_->model(), resident_->parameters(), compute);
    return;
  }
  gather_ = &streams.add("gather", StreamRole::comm);
  sharded_ = std::make_unique<Sharded>(config, dtype, streams.device(), *world);
  sharded_->model.fill_tables(compute);
  AdaptedWeights weights(source, sharded_->model);
  const InitialValues values = adapted_values(weights);
  for (ShardedUnit& unit : sharded_->units->all()) unit.initialize(compute, *gather_, values);
  streams.sync_all();
}

Tensor ModelWeights::forward(LayerCall& c, const Layers& layers) {
  Tensor x = layers.input;
  for (int i = layers.first; i < layers.end; ++i) {
    const ArenaScope scope(c.saved);
    const int next = i + 1 < layers.end ? i + 1 : layers.next;
    const Tensor& buffer = layers.buffers[static_cast<size_t>(i - layers.first) % 2];
    const Tensor y = buffer.beginning(model().output(i, layers.rows));
    model().layer(i).forward(c, acquire(i, next, c.stream), y, x);
    release(i, next, c.stream);
    x = y;
  }
  return x;
}

void ModelWeights::head(LayerCall& c, const Tensor& x) {
  const ArenaScope scope(c.saved);
  const int last = model().layer_count() - 1;
  model().layer(last).forward(c, acquire(last, kNoLayer, c.stream), {}, x);
  release(last, kNoLayer, c.stream);
}

ParamView ModelWeights::acquire(int layer, int next, Stream& stream) {
  if (resident_) return resident_->view(layer);
  if (stream.planning())
    return ParamView(sharded_->shapes[static_cast<size_t>(sharded_->model.param_list_of(layer))]);
  sharded_->units->prefetch(layer, *gather_);
  if (next != kNoLayer) sharded_->units->prefetch(next, *gather_);
  return sharded_->units->acquire(layer, stream);
}

void ModelWeights::release(int layer, int next, Stream& stream) {
  if (sharded_ && !stream.planning()) sharded_->units->release(layer, next, stream);
}

}  // namespace flatshard
