#pragma once
// The part of YAML that configuration files of accelerate use: mappings nested by indentation, whose values
// are plain or quoted scalars of one line, lists in brackets, or lists of lines that begin with "- ". An
// Error names file and line; anchors, tags, block scalars and flow mappings with members are refused.

#include <string>
#include <vector>

namespace flatshard {

struct YamlEntry {
  enum class Kind { scalar, list, mapping };
  std::string key;
  int line = 0;
  Kind kind = Kind::scalar;
  std::string value{};               // of a scalar; "" where it is absent, null or ~
  bool quoted = false;               // a quoted scalar is text, whatever it looks like
  std::vector<std::string> items{};  // of a list
  std::vector<YamlEntry> members{};  // of a mapping, in file order, with distinct keys
};

// `name` is the source that errors cite.
std::vector<YamlEntry> parse_yaml_mapping(const std::string& text, const std::string& name);

}  // namespace flatshard
