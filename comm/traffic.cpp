#include "comm/traffic.h"

namespace flatshard {
namespace {

// The bytes received in an exact sum of `elements`. In two levels, the second exchange is fp32.
Bytes received_in_sum(int64_t elements, DType wire, const Levels& levels) {
  const int64_t part = elements / levels.ranks, width = size_of(wire);
  if (levels.two()) {
    Bytes bytes = received_in_sum(levels.between() * part, DType::f32, levels.of_place());
    bytes.inside += (levels.inside - 1) * levels.between() * part * width;
    return bytes;
  }
  return {.inside = (levels.on_host - 1) * part * width,
          .between = (levels.ranks - levels.on_host) * part * width};
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Bytes& bytes) {
  return out << bytes.inside << " + " << bytes.between;
}

// In one level the shards travel around a ring of all ranks, which enters each host once.
Bytes received_in_gather(int64_t bytes, const Levels& levels) {
  const int64_t part = bytes / levels.ranks, all = (levels.ranks - 1) * part;
  const int64_t between = levels.two()
                              ? received_in_gather(levels.between() * part, levels.of_place()).between
                          : levels.on_host < levels.ranks ? all / levels.on_host
                                                          : 0;
  return {.inside = all - between, .between = between};
}

Traffic traffic_of(const FlatLayout& trainable, const FlatLayout& frozen, const UnitRole& role,
                   int64_t gathers, const UnitOptions& options, const RankLevels& levels) {
  // A unit in parts is exchanged among the ranks that work with the same part.
  const Levels group = role.parts > 1 ? levels.group.of_place() : levels.group, &replicas = levels.replicas;
  const RankGroups groups{group.ranks * replicas.ranks, group.ranks};
  const int64_t elements = trainable.size() / role.parts;
  Traffic traffic;
  const auto gather = [&](int64_t times, int64_t bytes) {
    traffic.gathered += received_in_gather(bytes, group) * times;
  };
  if (options.policy.params && !role.replicated) {
    const bool stays = role.root && options.keep_root;
    gather(stays ? 1 : gathers, elements * size_of(options.compute));
    gather(stays ? 1 : gathers, frozen.size());
  } else {
    gather(1, elements * size_of(options.compute));  // gathers the updated parameters
  }
  traffic.reduced = sums_are_unsharded(options, groups)
                        ? received_in_sum(elements, DType::f32, group)
                        : received_in_sum(elements, options.wire, group) * options.lane_rounds();
  // Across replicas, a shard is summed in parts, which are then gathered.
  traffic.reduced += received_in_sum(trainable.shard_size(), DType::f32, replicas);
  traffic.reduced += received_in_gather(trainable.shard_size() * size_of(DType::f32), replicas);
  return traffic;
}

}  // namespace flatshard
