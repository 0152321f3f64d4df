#pragma once
// A variable whose values have names: a config key or a program's option.

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/named.h"

namespace flatshard {

// Reads and sets a variable of any type by name.
struct Choice {
  std::vector<std::string> names;
  std::function<std::string()> name;                 // name of the current value
  std::function<bool(const std::string& name)> set;  // false if there is no such name
};

// `names[i]` is the name of `values[i]`.
template <class T>
Choice choice(T* variable, const std::vector<std::string>& names, const std::vector<T>& values) {
  const auto name = [=] {
    return names.at(static_cast<size_t>(std::ranges::find(values, *variable) - values.begin()));
  };
  const auto set = [=](const std::string& wanted) {
    const auto found = std::ranges::find(names, wanted);
    if (found != names.end()) *variable = values[static_cast<size_t>(found - names.begin())];
    return found != names.end();
  };
  return {.names = names, .name = name, .set = set};
}
inline Choice choice(std::string* variable, const std::vector<std::string>& names) {
  return choice(variable, names, names);
}
// Without `values`, all values of the enum are permitted.
template <Named E>
Choice choice(E* variable, std::vector<E> values = {}) {
  if (values.empty())
    for (const char* name : value_names(E{})) values.push_back(*named<E>(name));
  std::vector<std::string> names;
  for (const E value : values) names.emplace_back(name_of(value));
  return choice(variable, names, values);
}
template <Named E>
Choice choice(std::optional<E>* variable, const char* empty) {
  std::vector<std::string> names{empty};
  std::vector<std::optional<E>> values{std::nullopt};
  for (const char* name : value_names(E{})) names.emplace_back(name), values.push_back(named<E>(name));
  return choice(variable, names, values);
}

}  // namespace flatshard
