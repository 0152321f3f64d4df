#pragma once
// Which rank does what, and where it runs. Ranks are numbered by stage: the first stage has the first ranks.
// Each stage consists of groups, whose ranks share one copy of its parameters; the ranks that own the same
// shard in several groups are replicas.

#include <functional>
#include <string>
#include <vector>

#include "comm/levels.h"
#include "comm/shard_policy.h"
#include "train/setup/pipeline.h"

namespace flatshard {

struct RankLayout {
  Pipeline pipeline{};
  RankGroups groups{};             // groups of the ranks of one stage
  std::vector<int> hosts{};        // host of each rank, as a number
  bool may_use_two_levels = true;  // whether sums over several hosts may take two levels
  int expert_ranks = 1;            // ranks that divide experts among them, and so exchange in a level

  int ranks() const { return pipeline.stages * groups.ranks; }
  int stage_of(int rank) const { return rank / groups.ranks; }
  int data_rank(int rank) const { return rank % groups.ranks; }
  // The ranks that share a rank's state, in order, and the ranks that own the same shard.
  std::vector<int> group_of(int rank) const;
  std::vector<int> replicas_of(int rank) const;
  // Whether `holds` is true for the members of any such group; stops at the first one.
  bool any_group(const std::function<bool(const std::vector<int>& members)>& holds) const;
  std::vector<int> hosts_of(const std::vector<int>& members) const;
  bool spans_hosts() const;
  int ranks_on_first_host() const;
  RankLevels levels_of(int rank) const;
  bool uses_two_levels() const;  // whether any group of ranks does
  // Why a group has only one level although two would send less; "" if there is no such group.
  std::string why_one_level() const;
};

}  // namespace flatshard
