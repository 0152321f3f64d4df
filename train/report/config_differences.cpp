#include "train/report/config_differences.h"

#include <algorithm>
#include <sstream>

namespace flatshard {
namespace {

// Calls visit(key, value) for the lines "[section]" and "name = value" that to_toml() writes.
template <class Visit>
void each_value(const std::string& config, Visit&& visit) {
  std::istringstream lines(config);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with('[') && line.ends_with(']'))
      section = line.substr(1, line.size() - 2) + '.';
    else if (!line.starts_with('#') && equals != line.npos)
      visit(section + line.substr(0, equals), line.substr(equals + 3));
  }
}

bool is_equal_in_all(const ConfigDifference& d) {
  return std::all_of(d.values.begin(), d.values.end(),
                     [&](const auto& value) { return value == d.values.front(); });
}

}  // namespace

std::vector<ConfigDifference> config_differences(const std::vector<std::string>& configs) {
  std::vector<ConfigDifference> all;
  for (size_t i = 0; i < configs.size(); ++i)
    each_value(configs[i], [&](const std::string& key, const std::string& value) {
      auto found = std::find_if(all.begin(), all.end(), [&](const auto& d) { return d.key == key; });
      if (found == all.end())
        found = all.insert(found, {.key = key, .values = {configs.size(), std::nullopt}});
      found->values[i] = value;
    });
  std::erase_if(all, [](const ConfigDifference& d) { return d.key == "run.dir" || is_equal_in_all(d); });
  return all;
}

}  // namespace flatshard
