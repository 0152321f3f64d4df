#pragma once
// A file of YAML that is one mapping, as the configuration files of accelerate are: its values are scalars,
// lists of scalars, and mappings; lists of mappings on request. JSON is YAML too. Read with libyaml. An Error
// names file and line; several documents, keys that appear twice, anchors and tags are refused.

#include <string>
#include <vector>

namespace flatshard {

struct YamlEntry {
  enum class Kind { scalar, list, mapping };
  std::string key;
  int line = 0;
  Kind kind = Kind::scalar;
  std::string value{};                            // text of a scalar; "" where it is absent, null or ~
  std::vector<std::string> items{};               // texts of a list
  std::vector<YamlEntry> members{};               // entries of a mapping, in file order, with distinct keys
  std::vector<std::vector<YamlEntry>> records{};  // mappings in a list
};

enum class YamlLists { of_scalars, of_mappings_too };

// `name` is the source that errors cite.
std::vector<YamlEntry> parse_yaml_mapping(const std::string& text, const std::string& name,
                                          YamlLists lists = YamlLists::of_scalars);

}  // namespace flatshard
