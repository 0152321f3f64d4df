#pragma once
// What the optimizer moves in a step.

#include "comm/sharded_unit.h"
#include "kernels/adamw.h"

namespace flatshard::bench {

// The least bytes of the AdamW update of a unit's shard.
inline double update_bytes(const ShardedUnit& unit) {
  const ShardedUnit::Shard s = unit.shard();
  return min_bytes(AdamW{.p = s.p,
                         .m = s.m,
                         .v = s.v,
                         .copy = s.copy,
                         .g = s.g,
                         .grad_scale = {},
                         .skip = {},
                         .lr = 1,
                         .decay_end = 0,
                         .step = 1});
}

}  // namespace flatshard::bench
