#include "train/setup/rank_layout.h"

#include <algorithm>

#include "runtime/text.h"

namespace flatshard {

std::vector<int> RankLayout::group_of(int rank) const {
  const int first = rank - groups.index_in_group(data_rank(rank));
  std::vector<int> members;
  for (int i = 0; i < groups.size; ++i) members.push_back(first + i);
  return members;
}

std::vector<int> RankLayout::replicas_of(int rank) const {
  const int first = rank - groups.group_of(data_rank(rank)) * groups.size;
  std::vector<int> members;
  for (int i = 0; i < groups.count(); ++i) members.push_back(first + i * groups.size);
  return members;
}

std::vector<int> RankLayout::hosts_of(const std::vector<int>& members) const {
  std::vector<int> found;
  for (const int rank : members) found.push_back(hosts[static_cast<size_t>(rank)]);
  return found;
}

bool RankLayout::spans_hosts() const {
  return std::any_of(hosts.begin(), hosts.end(), [&](int host) { return host != hosts.front(); });
}

int RankLayout::ranks_on_first_host() const {
  return static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts.front()));
}

RankLevels RankLayout::levels_of(int rank) const {
  const int data = data_rank(rank);
  RankLevels levels{.group = flatshard::levels_of(hosts_of(group_of(rank)), groups.index_in_group(data),
                                                  may_use_two_levels),
                    .replicas = flatshard::levels_of(hosts_of(replicas_of(rank)), groups.group_of(data),
                                                     may_use_two_levels)};
  if (expert_ranks > 1) levels.group.inside = expert_ranks;
  return levels;
}

bool RankLayout::any_group(const std::function<bool(const std::vector<int>& members)>& holds) const {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (groups.index_in_group(data_rank(rank)) == 0 && holds(group_of(rank))) return true;
    if (groups.group_of(data_rank(rank)) == 0 && holds(replicas_of(rank))) return true;
  }
  return false;
}

bool RankLayout::uses_two_levels() const {
  if (expert_ranks > 1) return true;
  return may_use_two_levels && spans_hosts() && any_group([&](const std::vector<int>& members) {
           return flatshard::levels_of(hosts_of(members), 0, true).two();
         });
}

std::string RankLayout::why_one_level() const {
  std::string why;
  any_group([&](const std::vector<int>& members) {
    const std::vector<int> on = hosts_of(members);
    if (!gain_from_two_levels(on)) return false;
    const std::string reason = flatshard::why_one_level(on);
    if (!reason.empty()) why = str("of the ranks ", ranges(members), ' ', reason);
    return !reason.empty();
  });
  return why;
}

}  // namespace flatshard
