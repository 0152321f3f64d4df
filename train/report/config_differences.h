#pragma once
// The config keys in which runs differ. It reads config.toml of run folders line by line, so that keys of
// other versions of this program are compared, too.

#include <optional>
#include <string>
#include <vector>

namespace flatshard {

struct ConfigDifference {
  std::string key;                                 // "optimizer.lr"
  std::vector<std::optional<std::string>> values;  // the value in each config, as TOML; empty: none
};

// Returns the differences in the order of the first config that has the key. Leaves out run.dir, which always
// differs.
std::vector<ConfigDifference> config_differences(const std::vector<std::string>& configs);

}  // namespace flatshard
