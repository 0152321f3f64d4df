#include "comm/agreement.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <unistd.h>

#include "runtime/check.h"
#include "runtime/reason.h"
#include "runtime/sha256.h"

namespace flatshard {
namespace {

struct Lines {
  explicit Lines(const std::string& text) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      const size_t equals = line.find(" = ");
      order.push_back(line.substr(0, equals));
      values[order.back()] = line.substr(equals + 3);
    }
  }
  std::vector<std::string> order;
  std::map<std::string, std::string> values;
};

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

std::string first_difference(const std::vector<std::string>& texts, const std::vector<std::string>& hosts) {
  const auto named = [&](size_t rank) {
    return hosts.empty() ? str("rank ", rank) : str("rank ", rank, " on ", hosts[rank]);
  };
  const Lines first(texts.front());
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts.front()) continue;
    const Lines other(texts[rank]);
    for (const std::string& key : first.order) {
      const auto found = other.values.find(key);
      const std::string& value = first.values.at(key);
      if (found == other.values.end())
        return str(named(rank), " has no ", key, ", ", named(0), " has ", value);
      if (found->second != value)
        return str(named(rank), " has ", key, " = ", found->second, ", ", named(0), " has ", value);
    }
    for (const std::string& key : other.order)
      if (!first.values.contains(key))
        return str(named(rank), " has ", key, " = ", other.values.at(key), ", ", named(0), " has none");
  }
  return "";
}

void agree(World& world, const std::string& text, const char* what, const char* advice) {
  Sha256 sha;
  sha.add(text.data(), text.size());
  const std::vector<std::string> hashes = world.all_gather_texts(sha.hex(), what);
  if (std::all_of(hashes.begin(), hashes.end(), [&](const std::string& h) { return h == hashes.front(); }))
    return;
  const std::vector<std::string> texts = world.all_gather_texts(text, what);
  fail(str(first_difference(texts, world.all_gather_texts(host_name(), "hosts")), ": ", advice));
}

void agree_on_schedule(World& world, const CollectiveLog& schedule) {
  std::ostringstream text;
  for (size_t i = 0; i < schedule.size(); ++i)
    text << "collective " << i + 1 << " of a step = " << describe(schedule[i]) << " of " << schedule[i].dtype
         << '\n';
  agree(world, std::move(text).str(), "the schedule", "every rank must run the same program");
}

void succeed_together(World& world, const std::function<void()>& work) {
  std::string error;
  try {
    work();
  } catch (const std::exception& caught) {
    error = reason_of(caught);
  }
  const std::vector<std::string> errors = world.all_gather_texts(error, "errors");
  for (size_t rank = 0; rank < errors.size(); ++rank)
    if (!errors[rank].empty()) fail(str(rank == 0 ? "" : str("on rank ", rank, ": "), errors[rank]));
}

}  // namespace flatshard
