#include "train/step/engine.h"

#include <algorithm>

#include "hub/initial_values.h"
#include "kernels/init.h"

namespace flatshard {
namespace {

std::optional<CopyStreams> copy_streams(const RunSetup& setup, StreamSet& streams) {
  if (!setup.units.offload && !setup.units.page_state_from && !setup.config.train.offload_activations)
    return std::nullopt;
  Stream& to_device = streams.add("copy to device", StreamRole::comm);
  return CopyStreams{to_device, streams.add("copy to host", StreamRole::comm)};
}

// Whether work of CPU streams waits until the host synchronizes.
bool defers_work(StreamOrder order) {
  return order == StreamOrder::comm_late || order == StreamOrder::comm_early;
}

}  // namespace

Engine::Engine(const RunSetup& setup, int rank, Communicators comms, const PipeCommunicators& pipe,
               MemoryPlan& memory, StreamSet& streams)
    : setup_(setup),
      rank_(rank),
      memory_(memory),
      streams_(streams),
      compute_(streams.add("compute")),
      gather_(streams.add("gather", StreamRole::comm)),
      reduce_(streams.add("reduce", StreamRole::comm)),
      model_(grouped_model(setup, memory.tables)),
      whole_(*setup.units_of_model),
      schedule_(
          schedule_of(setup.pipeline, stage(), setup.batching.micro_steps, whole_.first_trained_layer())),
      copies_(copy_streams(setup, streams)),
      units_(own_wrapping(), comms, setup.units, memory.units(), copies_),
      optimizer_(setup.config.optimizer, units_.all(), units_.shared(), norm_order(pipe)),
      buffers_(setup.pipeline, schedule_, model_, whole_.first_trained_layer(),
               static_cast<int>(setup.batching.lanes), setup.most_rows(setup.batching.lane_sequences),
               setup.compute, setup.config.train.recompute,
               setup.config.train.offload_activations ? copies_ : std::nullopt, memory),
      pipe_(pipe, streams, setup.pipeline.embeds_apart),
      lane_losses_(static_cast<size_t>(local_lanes())),
      sequence_losses_(static_cast<size_t>(local_lanes() * setup.batching.lane_sequences)) {
  if (setup.expert_ranks > 1)
    expert_ranks_.emplace(units_, setup.model.experts,
                          !setup.uses_graphs() && !defers_work(streams.options().order), memory.batch,
                          memory.staging);
  model_.add_layer_sets(buffers_.slots() * static_cast<int>(setup.batching.lanes),
                        [&](int layer) { return setup.pipeline.owns(stage(), layer); });
  const int64_t widest = std::max(setup.batching.lane_sequences, setup.eval_sequences) * setup.seq_len();
  target_weights_ = memory.batch.alloc(DType::f32, {widest});
  for (int64_t lane = 0; lane < local_lanes(); ++lane) {
    inputs_.emplace_back(setup, setup.batching.lane_sequences, memory);
    draws_.push_back({.seed = static_cast<uint64_t>(setup.config.run.seed), .step = 0});
  }
  if (setup.config.loss.is_used()) answers_.resize(sequence_losses_.size());
  losses_ = Mirror(memory.staging, memory.batch.alloc(DType::f32, {local_lanes(), lane_tokens()}));
  if (const int64_t experts = setup.model.experts; experts > 0) {
    const bool balances = setup.router_aux_loss() > 0;
    expert_counts_ = Mirror(memory.staging, memory.batch.alloc(DType::i32, {setup.model.layers, experts}));
    if (moves_router_biases())
      bias_changes_ = Mirror(memory.staging, memory.batch.alloc(DType::f32, {setup.model.layers, experts}));
    if (balances) lane_counts_ = memory.batch.alloc(DType::i32, {local_lanes(), experts});
    if (balances || setup.config.train.router_z_loss > 0) {
      routing_factors_ = Mirror(memory.staging, memory.batch.alloc(DType::f32, {local_lanes(), 2}));
      routing_losses_ =
          Mirror(memory.staging, memory.batch.alloc(DType::f32, {local_lanes(), lane_tokens(), 2}));
    }
  }
  norm_ = Mirror(memory.staging, optimizer_.norm());
  nonfinite_ = Mirror(memory.staging, optimizer_.nonfinite());
}

// The units of this stage.
Wrapping Engine::own_wrapping() const {
  const Pipeline& pipeline = setup_.pipeline;
  Wrapping own = whole_.restricted([&](int layer) { return pipeline.owns(stage(), layer); });
  own.set_in_flight([&](const std::vector<int>& layers) {
    std::vector<int> chunks;
    for (int chunk = 0; chunk <= pipeline.last_chunk(); ++chunk) {
      const Chunk& c = pipeline.chunks[static_cast<size_t>(chunk)];
      if (std::any_of(layers.begin(), layers.end(),
                      [&](int layer) { return c.first <= layer && layer < c.end; }))
        chunks.push_back(chunk);
    }
    return partly_done(schedule_.actions, chunks);
  });
  return own;
}

NormOrder Engine::norm_order(const PipeCommunicators& pipe) const {
  NormOrder order{pipe.stages(), {}};
  for (const ParamList& unit : whole_.units())
    order.units.push_back({0, trainable_layout(unit).shard_size()});
  for (int layer = 0; layer < whole_.layer_count(); ++layer)
    for (const int unit : whole_.units_of(layer))
      order.units[static_cast<size_t>(unit)].stage = setup_.pipeline.stage_of(layer);
  return order;
}

void Engine::initialize() {
  const auto seed = static_cast<uint64_t>(setup_.config.run.seed);
  initialize(quantized_values(random_values(seed), setup_.model));
}

void Engine::initialize(const InitialValues& values) {
  model_.fill_tables(compute_);
  for (ShardedUnit& u : units()) u.initialize(compute_, gather_, values);
  streams_.sync_all();
}

void Engine::load_shards(const std::function<void(size_t)>& load) {
  model_.fill_tables(compute_);
  for (ShardedUnit& u : units()) u.clear_padding(compute_);
  compute_.sync();
  for (size_t i = 0; i < units().size(); ++i) {
    load(i);
    units()[i].round_masters(compute_);  // overlaps with reading the next unit
  }
}

void Engine::publish_all() {
  for (ShardedUnit& u : units()) u.publish_all(compute_, gather_);
  streams_.sync_all();
}

}  // namespace flatshard
