#include "comm/shard_policy.h"

#include "runtime/check.h"

namespace flatshard {

const std::vector<ShardPolicy>& shard_policies() {
  static const std::vector<ShardPolicy> rows{
      {"no_shard", false, false, false}, {"zero1", false, false, true}, {"shard_grad_op", false, true, true},
      {"full_shard", true, true, true},  {"hybrid", true, true, true},
  };
  return rows;
}

const ShardPolicy& shard_policy(const std::string& name) {
  std::string names;
  for (const ShardPolicy& policy : shard_policies()) {
    if (policy.name == name) return policy;
    names += (names.empty() ? "" : ", ") + policy.name;
  }
  fail(str("parallel.strategy is \"", name, "\", must be one of ", names));
}

RankGroups groups_of(const ShardPolicy& policy, int ranks, int group_size) {
  if (policy.name != "hybrid") {
    check(group_size == 0, "parallel.group_size = ", group_size,
          " has an effect only with parallel.strategy = \"hybrid\"; remove it");
    return {ranks, policy.optimizer ? ranks : 1};
  }
  check(group_size > 0 && ranks % group_size == 0, "parallel.group_size = ", group_size,
        " must be positive and divide the ", ranks, " ranks of the run");
  return {ranks, group_size};
}

}  // namespace flatshard
