#include "train/step/memory_plan.h"

#include "runtime/check.h"

namespace flatshard {
namespace {

struct Purpose {
  const char *name, *what;
};
constexpr Purpose kPurposes[] = {
    {"parameters", "in the compute dtype: all of them, or this rank's shards"},
    {"gathered", "buffers for the gathered parameters of sharded units"},
    {"optimizer", "fp32 master weights and optimizer state of this rank's shards"},
    {"paged", "host memory: paged optimizer state of this rank's shards"},
    {"gradients", "fp32 gradients, accumulated over micro-steps"},
    {"exchange", "gradients before and during their reduction over ranks"},
    {"activations", "saved for the backward pass, or used by an evaluation"},
    {"scratch", "temporary workspace of ops"},
    {"batch", "tokens, targets and losses of this rank's lanes"},
    {"tables", "rotary embedding frequencies"},
    {"staging", "host memory: inputs and results of a GPU, and the snapshot of an asynchronous checkpoint"},
    {"transport", "host memory: GPU tensors in transit between ranks"},
    {"stored", "host memory: activations until their backward pass"},
};

// An arena in host memory, pinned for asynchronous copies if the device is a GPU.
Arena host_arena(int purpose, Device device) {
  return Arena(kPurposes[purpose].name, Device::cpu(),
               device.is_cuda() ? Placement::pinned : Placement::plain);
}

// An arena for tensors that ranks exchange.
Arena exchanged_arena(int purpose, Device device, bool shared) {
  return Arena(kPurposes[purpose].name, device, shared ? Placement::shared : Placement::plain);
}

// An arena for shard data, which offload places in host memory.
Arena shard_arena(int purpose, Device device, bool offload, bool shared) {
  return offload ? host_arena(purpose, device) : exchanged_arena(purpose, device, shared);
}

}  // namespace

MemoryPlan::MemoryPlan(Device device, bool offload, bool shared)
    : parameters(shard_arena(0, device, offload, shared)),
      gathered(exchanged_arena(1, device, shared)),
      optimizer(shard_arena(2, device, offload, false)),
      paged(host_arena(3, device)),
      gradients(shard_arena(4, device, offload, shared)),
      exchange(exchanged_arena(5, device, shared)),
      activations(kPurposes[6].name, device),
      scratch(kPurposes[7].name, device),
      batch(kPurposes[8].name, device),
      tables(kPurposes[9].name, device),
      staging(host_arena(10, device)),
      transport(host_arena(11, device)),
      stored(host_arena(12, device)),
      offload_(offload) {}

std::array<Arena*, 13> MemoryPlan::all() {
  return {&parameters, &gathered, &optimizer, &paged,   &gradients, &exchange, &activations,
          &scratch,    &batch,    &tables,    &staging, &transport, &stored};
}
std::array<const Arena*, 13> MemoryPlan::all() const {
  return {&parameters, &gathered, &optimizer, &paged,   &gradients, &exchange, &activations,
          &scratch,    &batch,    &tables,    &staging, &transport, &stored};
}

Arena& MemoryPlan::slot(size_t index) {
  if (index == 0) return activations;
  while (more_slots_.size() < index) more_slots_.emplace_back(activations.name(), activations.device());
  return more_slots_[index - 1];
}

int64_t MemoryPlan::peak_of(const Arena& arena) const {
  int64_t peak = arena.peak();
  if (&arena == &activations)
    for (const Arena& slot : more_slots_) peak += slot.peak();
  return peak;
}

void MemoryPlan::commit(CommitOptions options) {
  for (Arena* arena : all()) arena->commit(options);
  for (Arena& slot : more_slots_) slot.commit(options);
}

int64_t MemoryPlan::peak() const {
  int64_t sum = 0;
  for (const Arena* arena : all())
    check(!__builtin_add_overflow(sum, peak_of(*arena), &sum),
          "the run needs more than 2^63 bytes of memory");
  return sum;
}

int64_t MemoryPlan::offloaded() const {
  return offload_ ? parameters.peak() + optimizer.peak() + gradients.peak() : 0;
}

int64_t MemoryPlan::on_host() const {
  return batch.device().is_cuda()
             ? offloaded() + paged.peak() + staging.peak() + transport.peak() + stored.peak()
             : peak();
}

std::vector<MemoryRow> MemoryPlan::rows() const {
  std::vector<MemoryRow> rows;
  const auto arenas = all();
  for (size_t i = 0; i < arenas.size(); ++i)
    if ((arenas[i] != &paged && arenas[i] != &staging && arenas[i] != &transport && arenas[i] != &stored) ||
        arenas[i]->peak() > 0)
      rows.push_back({arenas[i]->name(), peak_of(*arenas[i]), kPurposes[i].what});
  if (offload_) {
    rows.push_back(
        {"host", offloaded(), "included above: offloaded parameters, optimizer state and gradients"});
    rows.push_back(
        {"device", peak() - offloaded(), "included above: buffers of the step; all shards are offloaded"});
  }
  rows.push_back({"all", peak(), ""});
  return rows;
}

}  // namespace flatshard
