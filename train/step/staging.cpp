#include "train/step/staging.h"

#include <algorithm>

#include "model/names.h"

namespace flatshard {
namespace {

// The tensors of a shard; the frozen values last.
std::array<Tensor*, kMostStates + 2> tensors_of(Owned& owned) {
  std::array<Tensor*, kMostStates + 2> all{&owned.p};
  for (size_t i = 0; i < kMostStates; ++i) all[i + 1] = &owned.state[i];
  all.back() = &owned.frozen;
  return all;
}

// Whether a checkpoint may contain frozen parameters of the unit: with adapters, only a grown embedding and
// head.
bool stores_frozen(const ShardedUnit& unit, const ModelConfig& model) {
  if (model.adapters.empty()) return true;
  const ParamNames& names = param_names(model.family);
  const auto& specs = unit.params().specs();
  return std::any_of(specs.begin(), specs.end(), [&](const ParamSpec& spec) {
    return spec.name == names.embedding + ".weight" || spec.name == names.head + ".weight";
  });
}

}  // namespace

Owned owned_of(const ShardedUnit& unit) {
  if (!unit.has_gradients()) return {.unit = &unit, .p = {}, .state = {}, .frozen = unit.frozen_shard()};
  const OptimizerShard shard = unit.shard();
  return {.unit = &unit, .p = shard.p, .state = shard.state, .frozen = unit.frozen_shard()};
}

std::vector<Owned> owned_shards(const Engine& engine) {
  std::vector<Owned> owned;
  for (size_t i = 0; i < engine.units().size(); ++i)
    if (engine.writes_unit(i)) owned.push_back(owned_of(engine.units()[i]));
  return owned;
}

Staging::Staging(Engine& engine, Arena& arena) : copies_(owned_shards(engine)) {
  for (Owned& copy : copies_) {
    if (copy.frozen.device.is_cuda() && !stores_frozen(*copy.unit, engine.model().config())) copy.frozen = {};
    for (Tensor* const tensor : tensors_of(copy))
      if (!tensor->empty() &&
          (tensor != &copy.frozen || tensor->device.is_cuda() || engine.moves_router_biases()))
        *tensor = arena.alloc(tensor->dtype, tensor->shape);
  }
}

void Staging::copy_from(Engine& engine) {
  std::vector<Owned> shards = owned_shards(engine);
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto from = tensors_of(shards[i]), to = tensors_of(copies_[i]);
    for (size_t j = 0; j < from.size(); ++j)
      if (!to[j]->empty() && to[j]->data != from[j]->data) copy(engine.compute(), *to[j], *from[j]);
  }
  engine.compute().sync();
}

}  // namespace flatshard
