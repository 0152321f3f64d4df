#pragma once
// The tensors that a checkpoint is written from: the shards themselves while training pauses, or a snapshot
// in host memory that is written while training continues.

#include <vector>

#include "runtime/arena.h"
#include "train/step/engine.h"

namespace flatshard {

// A rank's shard of a unit.
struct Owned {
  const ShardedUnit* unit;
  Tensor p;              // masters; empty, like the state, if nothing in the unit is trained
  OptimizerState state;  // state of unit->optimizer()
  Tensor frozen;
};

Owned owned_of(const ShardedUnit& unit);
// The shards of all units that this rank writes. Replicas of a shard alternate by unit, to share the work.
std::vector<Owned> owned_shards(const Engine& engine);

// A snapshot of these shards. Frozen parameters that are in host memory already, or that no checkpoint
// contains, are not copied: they never change.
class Staging {
 public:
  Staging(Engine& engine, Arena& arena);

  // Takes a snapshot, between steps. It is valid until the next call.
  void copy_from(Engine& engine);
  const std::vector<Owned>& copies() const { return copies_; }

 private:
  std::vector<Owned> copies_;
};

}  // namespace flatshard
