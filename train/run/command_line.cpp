#include "train/run/command_line.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "runtime/spelling.h"
#include "train/command_line/arguments.h"
#include "train/config/foreign_keys.h"
#include "train/config/unknown_key.h"

namespace flatshard {
namespace {

// What was meant by an option that neither the program nor its config has.
std::string unknown_option(const CLI::App& app, const std::string& option) {
  const std::string similar = similar_option(app, option), word = option.substr(2);
  if (!similar.empty()) return str(option, ": unknown option; did you mean ", similar, "? See train --help");
  Config config;
  const std::vector<Field> known = fields(config);
  if (foreign_key(word)) return str(option, ": ", unknown_key(known, word).message);
  std::vector<std::string> names;  // of keys, without their sections
  for (const Field& field : known) names.push_back(name_in_section(field.key));
  const auto meant = std::find(names.begin(), names.end(), similar_word(word, names));
  return meant != names.end()
             ? str(option, ": unknown option; did you mean --",
                   known[static_cast<size_t>(meant - names.begin())].key, '?')
             : str(option,
                   ": unknown option; train takes a config file, options, and config keys as "
                   "--section.key=value, see train --help");
}

}  // namespace

TrainArguments separate_overrides(const CLI::App& app, const std::vector<std::string>& arguments,
                                  Problems& problems) {
  TrainArguments separated;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i], name = argument.substr(0, argument.find('='));
    if (argument == "--" || !argument.starts_with("--") || app.get_option_no_throw(name)) {
      separated.options.push_back(argument);
      continue;
    }
    std::string text = argument.substr(2);
    const bool has_value = name != argument;
    if (!has_value && i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"))
      text += '=' + arguments[++i];
    if (name.find('.') == name.npos)
      problems.add(unknown_option(app, name));
    else
      separated.overrides.push_back(text);
  }
  return separated;
}

void check_none_left(const std::vector<std::string>& left) {
  for (const std::string& argument : left) {
    const bool is_key = argument.find('=') != argument.npos;
    fail(str(argument, ": unexpected argument; ",
             is_key ? "to set a config key, write --" + argument.substr(argument.find_first_not_of('-'))
                    : "train takes one config file, and options; see train --help"));
  }
}

}  // namespace flatshard
