#pragma once
// The memory traffic of the optimizer in a step.

#include "comm/sharded_unit.h"

namespace flatshard::bench {

// The least number of bytes in the update of a unit's shard.
inline double update_bytes(const ShardedUnit& unit) {
  const ShardedUnit::Shard s = unit.shard();
  int64_t updated = s.p.bytes();
  for (const Tensor& state : s.state) updated += state.bytes();
  return static_cast<double>(2 * updated + s.copy.bytes() + s.g.bytes());
}

}  // namespace flatshard::bench
