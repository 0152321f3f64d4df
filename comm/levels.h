#pragma once
// The levels in which the ranks of a group exchange tensors. Links inside a host are several times as fast as
// the network between hosts. In two levels, the ranks of each host exchange first, and then the ranks that
// have the same place on their hosts: gradients cross the network as one sum for each host, and parameters
// arrive once at each host instead of at each of its ranks.
//
//   hosts of 2 ranks:  r0 r1 | r2 r3      inside: r0 with r1, r2 with r3      between: r0 with r2, r1 with r3
//
// Ranks that divide experts among them (parallel.expert_ranks) exchange first in the same way, on one host.
//
// Sums keep their bits: a power of two of consecutive ranks is a subtree of the tree over all ranks.

#include <span>
#include <string>
#include <vector>

namespace flatshard {

struct Levels {
  int ranks = 1;    // ranks in the group
  int inside = 1;   // ranks that exchange first, such as those of a host; all ranks if there is one level
  int on_host = 1;  // ranks of the group on the host of the given member, itself included

  int between() const { return ranks / inside; }
  bool two() const { return between() > 1; }
  // The level of the ranks that have the same place among those that exchange first.
  Levels of_place() const {
    return {.ranks = between(), .inside = between(), .on_host = on_host > inside ? on_host / inside : 1};
  }
};

// The levels of a rank: in its group, and among the ranks that own the same shard.
struct RankLevels {
  Levels group, replicas;
};

// The levels of the member at this index in a group. hosts[i] is the host of member i.
Levels levels_of(std::span<const int> hosts, int member, bool in_two);
// Returns whether the members are on several hosts, with several on a host: then two levels send less.
bool gain_from_two_levels(std::span<const int> hosts);
// The reason why such a group has only one level, such as "its hosts have 3 ranks each, which is no power of
// two"; "" if it can have two.
std::string why_one_level(std::span<const int> hosts);

}  // namespace flatshard
