#include <sstream>

#include "runtime/text.h"
#include "train/command_line/command.h"

namespace flatshard {
namespace {

// {"-0", "--null"}.
std::vector<std::string> names_of(const Option& option) {
  std::istringstream list(option.names);
  std::vector<std::string> names;
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

// The lines of two case statements: words to offer for a command, and values to offer after an option.
struct Cases {
  std::ostringstream words, values;

  void add(const Command& command, const std::string& name, const std::vector<std::string>& standard) {
    std::vector<std::string> all;
    for (const Command& inner : command.commands) all.push_back(inner.name);
    all.insert(all.end(), {"-h", "--help"});
    for (const Option& option : command.options) {
      if (option.is_positional() || option.details.hidden) continue;
      const std::vector<std::string> names = names_of(option);
      all.insert(all.end(), names.begin(), names.end());
      const auto* const choice = std::get_if<Choice>(&option.value);
      add_values(name, names, choice ? choice->names : option.details.choices);
    }
    all.insert(all.end(), standard.begin(), standard.end());
    for (const Key& key : command.keys) {
      all.push_back("--" + key.name + "=");
      add_values(name, {"--" + key.name}, key.values);
    }
    words << "    \"" << name << "\") words=\"" << joined(all, " ") << "\" ;;\n";
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

std::string bash_completion(const Command& program) {
  Cases cases;
  cases.add(program, "", {"--version"});
  std::vector<std::string> commands;
  for (const Command& command : program.commands) {
    commands.push_back(command.name);
    cases.add(command, command.name, {});
  }
  const std::string function = "_flatshard_" + program.name;
  std::ostringstream out;
  out << "# Completion for bash; written by \"" << program.name << " --describe bash\".\n"
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
      << "complete -o default -F " << function << ' ' << program.name << " flatshard-" << program.name;
  return std::move(out).str();
}

}  // namespace flatshard
