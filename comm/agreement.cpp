#include "comm/agreement.h"

#include <map>
#include <sstream>

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

}  // namespace

std::string difference(size_t rank, size_t like, const std::vector<std::string>& texts,
                       const std::vector<std::string>& hosts) {
  const auto named = [&](size_t one) {
    return hosts.empty() ? str("rank ", one) : str("rank ", one, " on ", hosts[one]);
  };
  const Lines first(texts[like]), other(texts[rank]);
  for (const std::string& key : first.order) {
    const auto found = other.values.find(key);
    const std::string& value = first.values.at(key);
    if (found == other.values.end())
      return str(named(rank), " has no ", key, ", ", named(like), " has ", value);
    if (found->second != value)
      return str(named(rank), " has ", key, " = ", found->second, ", ", named(like), " has ", value);
  }
  for (const std::string& key : other.order)
    if (!first.values.contains(key))
      return str(named(rank), " has ", key, " = ", other.values.at(key), ", ", named(like), " has none");
  return "";
}

void agree(World& world, const std::string& text, const char* what, const char* advice, int like) {
  Sha256 sha;
  sha.add(text.data(), text.size());
  const std::vector<std::string> hashes = world.all_gather_texts(sha.hex(), what);
  const double mine = like;
  const std::vector<double> models = world.all_gather({&mine, 1}, what);
  const auto model_of = [&](size_t rank) { return static_cast<size_t>(models[rank]); };
  bool equal = true;
  for (size_t rank = 0; rank < hashes.size(); ++rank) equal = equal && hashes[rank] == hashes[model_of(rank)];
  if (equal) return;
  const std::vector<std::string> texts = world.all_gather_texts(text, what);
  std::vector<int> others;
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (texts[rank] != texts[model_of(rank)]) others.push_back(static_cast<int>(rank));
  const std::string all =
      others.size() > 1 ? str("; in all, ", name_ranks(others, world.hosts()), " differ") : "";
  const size_t first = static_cast<size_t>(others.front());
  fail(str(difference(first, model_of(first), texts, world.hosts()), all, ": ", advice));
}

void agree_on_schedule(World& world, const CollectiveLog& schedule, int like) {
  std::ostringstream text;
  for (size_t i = 0; i < schedule.size(); ++i)
    text << "collective " << i + 1 << " of a step = " << describe(schedule[i]) << " of " << schedule[i].dtype
         << '\n';
  agree(world, std::move(text).str(), "the schedule", "every rank must run the same program", like);
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
