#include "runtime/check.h"
#include "train/config/yaml_mapping.h"

namespace flatshard {

std::vector<YamlEntry> parse_yaml_mapping(const std::string&, const std::string& name, YamlLists) {
  fail(str(name,
           ": is YAML, which this build cannot read: install libyaml-dev, then configure and build again, or "
           "set the keys in the config file of train"));
}

}  // namespace flatshard
