#include "comm/levels.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "runtime/check.h"

namespace flatshard {
namespace {

int on_host(std::span<const int> hosts, int host) {
  return static_cast<int>(std::count(hosts.begin(), hosts.end(), host));
}

int hosts_in(std::span<const int> hosts) {
  return static_cast<int>(std::set<int>(hosts.begin(), hosts.end()).size());
}

// Returns whether the members of each host follow one another.
bool are_in_order(std::span<const int> hosts) {
  std::vector<int> runs(hosts.begin(), hosts.end());
  runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
  return static_cast<int>(runs.size()) == hosts_in(hosts);
}

}  // namespace

bool gain_from_two_levels(std::span<const int> hosts) {
  const int n = hosts_in(hosts);
  return n > 1 && n < static_cast<int>(hosts.size());
}

std::string why_one_level(std::span<const int> hosts) {
  std::map<int, int> members;  // number of members of each host
  for (const int host : hosts) ++members[host];
  const int first = members.at(hosts.front());
  for (const int host : hosts)
    if (const int n = members.at(host); n != first)
      return str("one of its hosts has ", std::min(first, n), " of its ranks and another has ",
                 std::max(first, n));
  if (!are_in_order(hosts)) return "its ranks are not numbered host by host";
  if (!std::has_single_bit(static_cast<unsigned>(first)))
    return str("its hosts have ", first, " ranks each, which is no power of two");
  return "";
}

Levels levels_of(std::span<const int> hosts, int member, bool in_two) {
  Levels levels{.ranks = static_cast<int>(hosts.size()),
                .inside = static_cast<int>(hosts.size()),
                .on_host = on_host(hosts, hosts[static_cast<size_t>(member)])};
  if (in_two && gain_from_two_levels(hosts) && why_one_level(hosts).empty()) levels.inside = levels.on_host;
  return levels;
}

}  // namespace flatshard
