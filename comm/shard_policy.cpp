#include "comm/shard_policy.h"

#include "runtime/check.h"

namespace flatshard {

const std::vector<ShardPolicy>& shard_policies() {
  static const std::vector<ShardPolicy> rows{
      {Strategy::no_shard, false, false, false},    {Strategy::zero1, false, false, true},
      {Strategy::shard_grad_op, false, true, true}, {Strategy::full_shard, true, true, true},
      {Strategy::hybrid, true, true, true},
  };
  return rows;
}

const ShardPolicy& shard_policy(Strategy strategy) { return shard_policies()[static_cast<size_t>(strategy)]; }

RankGroups groups_of(const ShardPolicy& policy, int ranks, int group_size) {
  if (policy.strategy != Strategy::hybrid) {
    check(group_size == 0, "parallel.group_size = ", group_size,
          " has an effect only with parallel.strategy = \"hybrid\"; remove it");
    return {ranks, policy.optimizer ? ranks : 1};
  }
  check(group_size > 0 && ranks % group_size == 0, "parallel.group_size = ", group_size,
        " must be positive and divide the ", ranks, " ranks of the run");
  return {ranks, group_size};
}

}  // namespace flatshard
