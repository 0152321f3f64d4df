#include "train/step/staging.h"

namespace flatshard {
namespace {

constexpr Tensor Owned::*kTensors[] = {&Owned::p,        &Owned::m,        &Owned::v,
                                       &Owned::m_absmax, &Owned::v_absmax, &Owned::frozen};

bool is_staged(Tensor Owned::*of, const Tensor& tensor) {
  return of != &Owned::frozen || tensor.device.is_cuda();
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

Staging::Staging(const Engine& engine, Arena& arena) : copies_(owned_shards(engine)) {
  for (Owned& copy : copies_)
    for (const auto of : kTensors)
      if (Tensor& tensor = copy.*of; !tensor.empty() && is_staged(of, tensor))
        tensor = arena.alloc(tensor.dtype, tensor.shape);
}

void Staging::copy_from(Engine& engine) {
  const std::vector<Owned> shards = owned_shards(engine);
  for (size_t i = 0; i < shards.size(); ++i)
    for (const auto of : kTensors)
      if (const Tensor& from = shards[i].*of; is_staged(of, from))
        copy(engine.compute(), copies_[i].*of, from);
  engine.compute().sync();
}

}  // namespace flatshard
