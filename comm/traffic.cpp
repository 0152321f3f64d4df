#include "comm/traffic.h"

namespace flatshard {
namespace {

int64_t received(int64_t elements, DType dtype, int ranks) {
  return elements * size_of(dtype) / ranks * (ranks - 1);
}

}  // namespace

Traffic traffic_of(const FlatLayout& trainable, const FlatLayout& frozen, const UnitRole& role,
                   int64_t gathers, const UnitOptions& options, RankGroups groups) {
  Traffic traffic;
  const bool values_are_sharded = options.policy.params && !role.replicated;
  if (values_are_sharded) {
    const bool stays = role.root && options.keep_root;
    traffic.gathered = (stays ? 1 : gathers) * (received(trainable.size(), options.compute, groups.size) +
                                                received(frozen.size(), DType::u8, groups.size));
  } else {
    traffic.gathered = received(trainable.size(), options.compute, groups.size);  // the updated parameters
  }
  traffic.reduced = sums_are_unsharded(options, groups)
                        ? received(trainable.size(), DType::f32, groups.size)
                        : options.lane_rounds() * received(trainable.size(), options.wire, groups.size);
  // Across replicas, a shard is reduce-scattered and all-gathered.
  traffic.reduced += 2 * received(trainable.shard_size(), DType::f32, groups.count());
  return traffic;
}

}  // namespace flatshard
