#pragma once
// What the units of a run share: communicators, arenas, and the slots and pages in them.

#include <optional>
#include <vector>

#include "comm/rank_group.h"
#include "comm/shard_placement.h"
#include "comm/slots.h"
#include "comm/state_pages.h"
#include "runtime/param.h"

namespace flatshard {

// The communicators of a run, one or two per stream, so that their calls can be in flight together.
struct Communicators {
  RankGroup compute;  // compute, gather, reduce: the ranks of a group
  RankGroup gather;
  RankGroup reduce;
  RankGroup replicas;  // the ranks that own the same shard, one per group
  void log_to(CollectiveLog* log) const {
    for (const RankGroup* group : {&compute, &gather, &reduce, &replicas}) group->log_to(log);
  }
  void reserve_workspace(Arena& pinned) const {
    for (const RankGroup* group : {&compute, &gather, &reduce, &replicas}) group->reserve_workspace(pinned);
  }
  void connect(Stream& stream) const {
    for (const RankGroup* group : {&compute, &gather, &reduce, &replicas}) group->connect(stream);
  }
  void graph_launches() const {
    for (const RankGroup* group : {&compute, &gather, &reduce, &replicas}) group->graph_launches();
  }
  void graph_launched(Stream& stream) const {
    for (const RankGroup* group : {&compute, &gather, &reduce, &replicas}) group->graph_launched(stream);
  }
  int64_t library_bytes(Transport transport) const {
    int64_t bytes = 0;
    for (const RankGroup* group : {&compute, &gather, &reduce, &replicas})
      bytes += group->library_bytes(transport);
    return bytes;
  }
  RankGroups groups() const { return {gather.size() * replicas.size(), gather.size()}; }
};

struct UnitResources {
  UnitResources(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles,
                Communicators communicators, const UnitOptions& unit_options, UnitArenas unit_arenas,
                std::optional<CopyStreams> copies);

  Communicators comms;
  UnitOptions options;
  UnitArenas arenas;
  GatherSlots gather_slots;
  GradientSlots gradient_slots;
  ShardPlacement shards;
  StatePages pages;
};

}  // namespace flatshard
