#include "train/command_line/declared_options.h"

#include <sstream>

#include <CLI/CLI.hpp>

namespace flatshard {

std::vector<const CLI::Option*> named_options(const CLI::App& app) {
  return app.get_options([](const CLI::Option* o) { return o->nonpositional() && !o->get_group().empty(); });
}

std::vector<const CLI::Option*> positional_options(const CLI::App& app) {
  return app.get_options([](const CLI::Option* o) { return o->get_positional() && !o->get_group().empty(); });
}

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> values_of(const CLI::Option& option) {
  // CLI11 shows the set of a validator in the name of the option's type: "TEXT:{fp32,bf16}".
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  std::vector<std::string> values;
  if (begin == type.npos || end == type.npos) return values;
  std::istringstream list(type.substr(begin + 1, end - begin - 1));
  for (std::string value; std::getline(list, value, ',');) values.push_back(value);
  return values;
}

std::string command_name(const CLI::App& app) { return "flatshard-" + app.get_name(); }

}  // namespace flatshard
