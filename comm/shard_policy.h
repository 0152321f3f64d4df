#pragma once
// Which parts of a training state are sharded over the ranks: a row of data for each strategy. Ranks form
// groups of equal size; a state is sharded inside a group and the same in all groups (its replicas).
//
//   strategy        params  grads  optimizer   groups
//   no_shard        whole   whole  whole       of one rank: every rank is a replica (DDP)
//   zero1           whole   whole  sharded     one
//   shard_grad_op   whole   sharded sharded    one (ZeRO-2)
//   full_shard      sharded sharded sharded    one (ZeRO-3)
//   hybrid          sharded sharded sharded    of group_size ranks
//
// Whole parameters stay on every rank between steps and are renewed once a step; sharded ones are gathered
// for the time of a stage. Whole gradients are summed over micro-steps before ranks exchange them, once a
// step; sharded ones travel after every micro-step.

#include <string>
#include <vector>

namespace flatshard {

struct ShardPolicy {
  std::string name;
  bool params, grads, optimizer;  // sharded?
};

const std::vector<ShardPolicy>& shard_policies();
const ShardPolicy& shard_policy(const std::string& name);  // an Error that lists the names when there is none

// The ranks as groups of consecutive ones.
struct RankGroups {
  int ranks = 1, size = 1;  // of all, of a group

  int count() const { return ranks / size; }  // groups, and so replicas of each shard
  int group_of(int rank) const { return rank / size; }
  int index_in_group(int rank) const { return rank % size; }
};

// group_size counts for hybrid alone, where it must divide the ranks.
RankGroups groups_of(const ShardPolicy& policy, int ranks, int group_size);

}  // namespace flatshard
