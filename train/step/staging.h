#pragma once
// Where the values lie that a checkpoint writes: in the shards themselves, while training stands still, or in
// a copy of them in host memory, from which files are written while training goes on.

#include <vector>

#include "runtime/arena.h"
#include "train/step/engine.h"

namespace flatshard {

// What a rank owns of a unit.
struct Owned {
  const ShardedUnit* unit;
  Tensor p, m, v;  // empty where nothing of the unit is trained
  Tensor frozen;
};

Owned owned_of(const ShardedUnit& unit);
// The shards themselves, of all units that are this rank's to write: where shards have replicas, these take
// turns, so that all write equally much.
std::vector<Owned> owned_shards(const Engine& engine);

// Room for one copy of all of that. Frozen values that are in host memory already need none: nobody changes
// them.
class Staging {
 public:
  Staging(const Engine& engine, Arena& room);

  // Copies, between steps; the copies then stay as they are until the next call.
  void copy_from(Engine& engine);
  const std::vector<Owned>& copies() const { return copies_; }

 private:
  std::vector<Owned> copies_;
};

}  // namespace flatshard
