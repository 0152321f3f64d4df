#include "train/step/staging.h"

#include <algorithm>

#include "model/names.h"

namespace flatshard {
namespace {

constexpr Tensor Owned::*kTensors[] = {&Owned::p,        &Owned::m,        &Owned::v,
                                       &Owned::m_absmax, &Owned::v_absmax, &Owned::frozen};

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
  Owned owned{.unit = &unit,
              .p = {},
              .m = {},
              .v = {},
              .m_absmax = {},
              .v_absmax = {},
              .frozen = unit.frozen_shard()};
  if (!unit.has_gradients()) return owned;
  const ShardedUnit::Shard shard = unit.shard();
  owned.p = shard.p;
  owned.m = shard.m;
  owned.v = shard.v;
  owned.m_absmax = shard.m_absmax;
  owned.v_absmax = shard.v_absmax;
  return owned;
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
    for (const auto of : kTensors)
      if (Tensor& tensor = copy.*of; !tensor.empty() && (of != &Owned::frozen || tensor.device.is_cuda()))
        tensor = arena.alloc(tensor.dtype, tensor.shape);
  }
}

void Staging::copy_from(Engine& engine) {
  const std::vector<Owned> shards = owned_shards(engine);
  for (size_t i = 0; i < shards.size(); ++i)
    for (const auto of : kTensors)
      if (const Tensor& from = shards[i].*of, &to = copies_[i].*of; !to.empty() && to.data != from.data)
        copy(engine.compute(), to, from);
  engine.compute().sync();
}

}  // namespace flatshard
