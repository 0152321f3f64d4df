// The texts of world.h that errors print. They are in a file of their own because a build without MPI has
// them, too.

#include <algorithm>
#include <set>

#include "comm/world.h"
#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {

std::string name_ranks(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::set<std::string> named;
  for (const int rank : ranks) named.insert(hosts[static_cast<size_t>(rank)]);
  std::string text = str(ranks.size() == 1 ? "rank " : "ranks ", ranges(ranks));
  for (const std::string& host : named) text += (host == *named.begin() ? " on " : ", ") + host;
  return text;
}

std::string describe_silent(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  if (ranks.empty()) return "all ranks answer";
  std::set<std::string> silent, talking;
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    (std::find(ranks.begin(), ranks.end(), static_cast<int>(rank)) == ranks.end() ? talking : silent)
        .insert(hosts[rank]);
  const bool whole_hosts = std::none_of(silent.begin(), silent.end(),
                                        [&](const std::string& host) { return talking.contains(host); });
  return str(name_ranks(ranks, hosts), ranks.size() == 1 ? " does" : " do",
             " not answer: ", whole_hosts ? "cut off, down or stuck" : "stuck, or slower than that");
}

}  // namespace flatshard
