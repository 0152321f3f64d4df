#include "train/command_line/bash_completion.h"

#include <sstream>

#include <CLI/CLI.hpp>

#include "train/command_line/declared_options.h"

namespace flatshard {
namespace {

std::string joined(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::vector<std::string> values_of(const Field& key) {
  if (std::holds_alternative<bool*>(key.slot)) return {"true", "false"};
  return key.names();
}

// The lines of two case statements: words to offer for a command, and values to offer after an option.
struct Cases {
  std::ostringstream words, values;

  void add(const CLI::App& app, const std::string& command, const std::vector<Field>& keys) {
    std::vector<std::string> all;
    for (const CLI::App* inner : subcommands(app)) all.push_back(inner->get_name());
    for (const CLI::Option* option : named_options(app)) {
      const std::vector<std::string> names = names_of(*option);
      all.insert(all.end(), names.begin(), names.end());
      add_values(command, names, flatshard::values_of(*option));
    }
    for (const Field& key : keys) {
      all.push_back("--" + key.key + "=");
      add_values(command, {"--" + key.key}, values_of(key));
    }
    words << "    \"" << command << "\") words=\"" << joined(all, " ") << "\" ;;\n";
  }

 private:
  void add_values(const std::string& command, const std::vector<std::string>& names,
                  const std::vector<std::string>& choices) {
    if (choices.empty()) return;
    for (const std::string& name : names)
      values << "    \"" << command << ' ' << name << "\") values=\"" << joined(choices, " ") << "\" ;;\n";
  }
};

}  // namespace

std::string bash_completion(const CLI::App& app, const std::vector<Field>& keys) {
  Cases cases;
  cases.add(app, "", keys);
  std::vector<std::string> commands;
  for (const CLI::App* command : subcommands(app)) {
    commands.push_back(command->get_name());
    cases.add(*command, command->get_name(), {});
  }
  const std::string function = "_flatshard_" + app.get_name();
  std::ostringstream out;
  out << "# Completion for bash; written by \"" << app.get_name() << " --describe bash\".\n"
      << function << "() {\n"
      << "  local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]}\n"
      << "  local command= words= values= word\n"
      << "  # Bash splits --option=value at the =.\n"
      << "  if [[ $cur == = ]]; then cur=\n"
      << "  elif [[ $option == = ]]; then option=${COMP_WORDS[COMP_CWORD-2]}; fi\n";
  if (!commands.empty())
    out << "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
        << "    case $word in " << joined(commands, "|") << ") command=$word; break ;; esac\n"
        << "  done\n";
  out << "  case $command in\n"
      << cases.words.str() << "  esac\n"
      << "  case \"$command $option\" in\n"
      << cases.values.str() << "  esac\n"
      << "  COMPREPLY=()\n"
      << "  if [[ $values ]]; then COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
      << "  elif [[ $cur == -*" << (commands.empty() ? "" : " || ! $command") << " ]]; then\n"
      << "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      << "    if [[ ${COMPREPLY-} == *= ]]; then compopt -o nospace 2>/dev/null; fi  # a value follows\n"
      << "  fi\n"
      << "}\n"
      << "complete -o default -F " << function << ' ' << app.get_name() << ' ' << command_name(app);
  return std::move(out).str();
}

}  // namespace flatshard
