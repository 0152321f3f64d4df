#pragma once
// The sharding strategies, which determine the parts of the training state that are sharded over the ranks.
// Ranks form groups of equal size; the state is sharded within a group and replicated across groups.
//
//   strategy        params     grads      optimizer   groups
//   no_shard        unsharded  unsharded  unsharded   one rank each: every rank is a replica (DDP)
//   zero1           unsharded  unsharded  sharded     one group
//   shard_grad_op   unsharded  sharded    sharded     one group (ZeRO-2)
//   full_shard      sharded    sharded    sharded     one group (ZeRO-3)
//   hybrid          sharded    sharded    sharded     group_size ranks each
//
// Unsharded parameters stay on every rank and are updated once per step; sharded parameters are gathered for
// the duration of a layer. Unsharded gradients are accumulated over micro-steps and reduced once per step;
// sharded gradients are reduced after every micro-step.

#include <vector>

#include "runtime/named.h"

namespace flatshard {

enum class Strategy { no_shard, zero1, shard_grad_op, full_shard, hybrid };
constexpr auto value_names(Strategy) {
  return std::array{"no_shard", "zero1", "shard_grad_op", "full_shard", "hybrid"};
}

struct ShardPolicy {
  Strategy strategy;
  bool params, grads, optimizer;  // whether each is sharded
};

const std::vector<ShardPolicy>& shard_policies();  // one for each strategy, in order
const ShardPolicy& shard_policy(Strategy strategy);

// The ranks, divided into groups of consecutive ranks.
struct RankGroups {
  int ranks = 1, size = 1;  // ranks in total and per group

  int count() const { return ranks / size; }  // the number of groups, and of replicas of each shard
  int group_of(int rank) const { return rank / size; }
  int index_in_group(int rank) const { return rank % size; }
};

// group_size must be 0 except for hybrid, where it must divide the number of ranks.
RankGroups groups_of(const ShardPolicy& policy, int ranks, int group_size);

}  // namespace flatshard
