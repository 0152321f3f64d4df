#include "train/step/engine.h"

#include <algorithm>

#include "kernels/init.h"
#include "train/quantized/quantized_values.h"

namespace flatshard {
namespace {

std::optional<CopyStreams> copy_streams(const RunSetup& setup, StreamGroup& streams) {
  if (!setup.units.offload && !setup.units.page_moments_from) return std::nullopt;
  Stream& to_device = streams.add("copy to device", StreamRole::comm);
  return CopyStreams{to_device, streams.add("copy to host", StreamRole::comm)};
}

}  // namespace

Engine::Engine(const RunSetup& setup, int rank, Communicators comms, const PipeCommunicators& pipe,
               MemoryPlan& memory, StreamGroup& streams)
    : setup_(setup),
      rank_(rank),
      memory_(memory),
      streams_(streams),
      compute_(streams.add("compute")),
      gather_(streams.add("gather", StreamRole::comm)),
      reduce_(streams.add("reduce", StreamRole::comm)),
      model_(grouped_model(setup, memory.tables)),
      whole_(*setup.units_of_model),
      passes_(passes_of(setup.pipeline, section(), setup.batching.micro_steps, whole_.first_trained_stage())),
      units_(own_wrapping(), comms, setup.units, memory.units(), copy_streams(setup, streams)),
      optimizer_(setup.config.optimizer, units_.all(), units_.shared(), norm_order(pipe)),
      buffers_(setup.pipeline, passes_, static_cast<int>(setup.batching.lanes),
               {lane_tokens(), setup.model.hidden}, setup.compute, setup.config.train.recompute, memory),
      pipe_(pipe, streams, setup.pipeline.embeds_apart),
      lane_losses_(static_cast<size_t>(local_lanes())) {
  model_.add_lanes(buffers_.slots() * static_cast<int>(setup.batching.lanes),
                   [&](int stage) { return setup.pipeline.owns(section(), stage); });
  const int64_t widest = std::max(setup.batching.lane_sequences, setup.eval_sequences) * setup.seq_len();
  target_weights_ = memory.batch.alloc(DType::f32, {widest});
  for (int64_t lane = 0; lane < local_lanes(); ++lane) {
    inputs_.push_back(batch_space(setup.batching.lane_sequences));
    batches_.push_back(batch_in(inputs_.back().device, lane_tokens()));
    draws_.push_back({.seed = static_cast<uint64_t>(setup.config.run.seed), .step = 0});
  }
  losses_ = Mirror(memory.staging, memory.batch.alloc(DType::f32, {local_lanes(), lane_tokens()}));
  norm_ = Mirror(memory.staging, optimizer_.norm());
  nonfinite_ = Mirror(memory.staging, optimizer_.nonfinite());
}

// The units of this section.
Wrapping Engine::own_wrapping() const {
  const Pipeline& pipeline = setup_.pipeline;
  Wrapping own = whole_.restricted([&](int stage) { return pipeline.owns(section(), stage); });
  own.set_in_flight([&](const std::vector<int>& stages) {
    std::vector<int> chunks;
    for (int chunk = 0; chunk <= pipeline.last_chunk(); ++chunk) {
      const Chunk& c = pipeline.chunks[static_cast<size_t>(chunk)];
      if (std::any_of(stages.begin(), stages.end(),
                      [&](int stage) { return c.first <= stage && stage < c.end; }))
        chunks.push_back(chunk);
    }
    return partly_done(passes_.actions, chunks);
  });
  return own;
}

NormOrder Engine::norm_order(const PipeCommunicators& pipe) const {
  NormOrder order{pipe.sections(), {}};
  for (const ParamList& unit : whole_.units())
    order.units.push_back({0, trainable_layout(unit).shard_size()});
  for (int stage = 0; stage < whole_.stage_count(); ++stage)
    for (const int unit : whole_.units_of(stage))
      order.units[static_cast<size_t>(unit)].section = setup_.pipeline.section_of(stage);
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

// Tokens, positions and targets, then document boundaries: at most one more than there are tokens.
Mirror Engine::batch_space(int64_t sequences) {
  const int64_t N = sequences * setup_.seq_len();
  const int64_t most_documents = setup_.mask_documents() ? N : sequences;
  return Mirror(memory_.staging, memory_.batch.alloc(DType::i32, {3 * N + most_documents + 1}));
}

Batch Engine::batch_in(const Tensor& space, int64_t tokens) {
  const auto part = [&](int64_t i) { return space.slice(i * tokens, (i + 1) * tokens); };
  return {.tokens = part(0),
          .positions = part(1),
          .targets = part(2),
          .boundaries = space.slice(3 * tokens, space.size())};
}

Batch Engine::read_batch(const Data& data, int64_t data_step, int64_t lane, const Mirror& space,
                         int64_t tokens) {
  const Batch on_host = data.read(data_step, lane, batch_in(space.host, tokens));
  space.upload(compute_);
  Batch batch = batch_in(space.device, tokens);
  batch.boundaries = batch.boundaries.slice(0, on_host.boundaries.size());
  return batch;
}

void Engine::set_target_weights(double value) {
  init_param(compute_, {.y = target_weights_,
                        .init = Init::constant(static_cast<float>(value)),
                        .random = RandomStream(0, "weights")});
}

}  // namespace flatshard
