#include "train/command_line/arguments.h"

#include <algorithm>
#include <cctype>

#include <CLI/CLI.hpp>

#include "runtime/check.h"
#include "runtime/spelling.h"

namespace flatshard {
namespace {

// The end of a message about an unknown word: a suggestion, if there is one, and what to read.
std::string suggestion(const std::string& similar, const std::string& then) {
  if (similar.empty()) return "; " + then;
  return str("; did you mean ", similar, "? ", static_cast<char>(std::toupper(then.front())), then.substr(1));
}

// "train --help" or "ckpt inspect --help"
std::string help_of(const CLI::App& app) {
  const std::string above = app.get_parent() ? app.get_parent()->get_name() + ' ' : "";
  return above + app.get_name() + " --help";
}

std::string positionals(const CLI::App& app) {
  std::string names;
  for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return o->get_positional(); }))
    names += ' ' + option->get_name();
  return names;
}

// The command that the first argument names; an Error if it names none.
const CLI::App* command_in(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  if (names.empty()) return &app;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  const auto word = std::find_if(arguments.begin(), arguments.end(),
                                 [](const std::string& a) { return !a.starts_with('-'); });
  check(word != arguments.end(), "a command is missing: ", list, "; see ", help_of(app));
  check(std::find(names.begin(), names.end(), *word) != names.end(), *word, ": unknown command",
        suggestion(similar_word(*word, names), str("the commands are ", list, "; see ", help_of(app))));
  return app.get_subcommand(*word);
}

void check_options(const CLI::App& command, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    const std::string name = argument.substr(0, argument.find('='));
    const bool known = !name.starts_with("--") || command.get_option_no_throw(name);
    check(known, name, ": unknown option",
          suggestion(similar_option(command, name), "see " + help_of(command)));
  }
}

}  // namespace

std::vector<std::string> arguments_of(int argc, const char* const* argv) { return {argv + 1, argv + argc}; }

std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string similar_option(const CLI::App& app, const std::string& option) {
  std::vector<std::string> names;
  for (const std::string& name : long_options(app)) names.push_back(name.substr(2));
  const std::string similar =
      similar_word(option.substr(std::min(option.find_first_not_of('-'), option.size())), names);
  return similar.empty() ? "" : "--" + similar;
}

void parse_arguments(CLI::App& app, const std::vector<std::string>& arguments) {
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // the parser's order
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ValidationError& error) {
    const std::string text = error.what();
    fail(text.starts_with(": ") ? text.substr(2) : text);  // the option may have no name to show
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = *command_in(app, arguments);
    check_options(command, arguments);
    const std::string usage = str("; usage: ", help_of(command).substr(0, help_of(command).rfind(' ')),
                                  positionals(command), " [OPTIONS], see ", help_of(command));
    const std::string text = error.what();
    check(text.find(" required ") == text.npos || !dynamic_cast<const CLI::ArgumentMismatch*>(&error),
          text.substr(0, text.find(':')), ": its value is missing; see ", help_of(command));
    const bool lacks_argument = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr,
               has_more = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    fail(text + (lacks_argument || has_more ? usage : ""));
  }
}

void add_choice(CLI::App& app, const std::string& option, const Choice& choice, const std::string& help) {
  app.add_option_function<std::string>(
         option, [choice](const std::string& name) { choice.set(name); }, help)
      ->check(CLI::IsMember(choice.names))
      ->default_str(choice.name());
}

}  // namespace flatshard
