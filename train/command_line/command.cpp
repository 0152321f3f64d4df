#include "train/command_line/command.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <sstream>
#include <type_traits>

#include <CLI/CLI.hpp>

#include "runtime/check.h"
#include "runtime/spelling.h"
#include "runtime/version.h"

namespace flatshard {
namespace {

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

CLI::Option& declare_variable(CLI::App& app, const Option& option) {
  return *std::visit(
      [&]<class T>(const T& value) {
        if constexpr (std::is_same_v<T, Choice>)
          return app
              .add_option_function<std::string>(
                  option.names, [value](const std::string& name) { value.set(name); }, option.about)
              ->check(CLI::IsMember(value.names))
              ->default_str(value.name());
        else if constexpr (std::is_same_v<T, bool*>)
          return app.add_flag(option.names, *value, option.about);
        else
          return app.add_option(option.names, *value, option.about);
      },
      option.value);
}

void limit(CLI::Option& declared, const Option& option, const NumberRange& range) {
  if (range.least == 0 && range.most == NumberRange{0}.most) {
    declared.check(CLI::NonNegativeNumber);
    return;
  }
  std::visit(
      [&]<class T>(const T&) {
        using Value = std::remove_pointer_t<T>;
        if constexpr (kIsNumber<Value>)
          declared.check(CLI::Range(static_cast<Value>(range.least), static_cast<Value>(range.most)));
      },
      option.value);
}

void declare(CLI::App& app, const Option& option) {
  const OptionDetails& details = option.details;
  CLI::Option& declared = declare_variable(app, option);
  if (details.type) declared.type_name(*details.type);
  declared.required(details.required);
  if (!details.choices.empty()) declared.check(CLI::IsMember(details.choices));
  if (details.range) limit(declared, option, *details.range);
  if (std::holds_alternative<std::vector<double>*>(option.value))
    declared.delimiter(',')->allow_extra_args(false);
  if (std::holds_alternative<std::vector<std::string>*>(option.value) && !option.is_positional())
    declared.expected(1)->take_all();
  if (details.separator) declared.delimiter(*details.separator)->allow_extra_args(false);
  if (details.shows_default) declared.capture_default_str();
  if (details.hidden) declared.group("");
}

void declare(CLI::App& app, const Command& command) {
  for (const Option& option : command.options) declare(app, option);
  for (const auto& [names, value, about, details] : command.options) {
    CLI::Option* const declared = app.get_option(names.substr(0, names.find(',')));
    for (const std::string& other : details.needs) declared->needs(app.get_option(other));
    for (const std::string& other : details.excludes) declared->excludes(app.get_option(other));
  }
  app.allow_extras(command.rest != nullptr);
  if (!command.footer.empty()) app.footer(command.footer);  // subcommands inherit it
  if (!command.commands.empty()) app.require_subcommand(1);
  for (const Command& inner : command.commands) declare(*app.add_subcommand(inner.name, inner.about), inner);
}

std::unique_ptr<CLI::App> app_of(const Command& program) {
  auto app = std::make_unique<CLI::App>(program.about, program.name);
  declare(*app, program);
  app->set_version_flag(
      "--version", [&program] { return version_text(program.name); },
      "print version, revision and the libraries of this build, and exit");
  const auto describe = [&program](const std::string& form) {
    throw CLI::CallForVersion(form == "man" ? man_page(program) : bash_completion(program), 0);
  };
  app->add_option_function<std::string>("--describe", describe, "print the man page or the bash completion")
      ->check(CLI::IsMember({"man", "bash"}))
      ->group("");
  return app;
}

// The end of a message about an unknown word: a suggestion, if there is one, and the help to read.
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

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

std::string similar_to(const CLI::App& app, const std::string& option) {
  const std::string word = option.substr(std::min(option.find_first_not_of('-'), option.size())),
                    similar = similar_word(word, long_names(app));
  return similar.empty() ? "" : "--" + similar;
}

// The command that the first argument names; an Error if it names none.
const CLI::App* command_in(const CLI::App& app, const Arguments& arguments) {
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

void check_options(const CLI::App& command, const Arguments& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    const std::string name = argument.substr(0, argument.find('='));
    const bool known = !name.starts_with("--") || command.get_option_no_throw(name);
    check(known, name, ": unknown option", suggestion(similar_to(command, name), "see " + help_of(command)));
  }
}

[[noreturn]] void refuse(const CLI::App& app, const Arguments& arguments, const CLI::ParseError& error) {
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

bool asks_for_all(const Arguments& arguments) {
  const auto help = std::find_if(arguments.begin(), arguments.end(),
                                 [](const std::string& word) { return word == "-h" || word == "--help"; });
  return help != arguments.end() && help + 1 != arguments.end() && help[1] == "all";
}

}  // namespace

const Command& parse_arguments(const Command& program, const Arguments& arguments) {
  const std::unique_ptr<CLI::App> app = app_of(program);
  if (!program.full_footer.empty() && asks_for_all(arguments)) {
    app->footer(program.full_footer);
    throw Answer{app->help()};
  }
  try {
    app->parse(Arguments(arguments.rbegin(), arguments.rend()));  // the parser takes them in reverse order
  } catch (const CLI::Success& question) {
    std::ostringstream text;
    app->exit(question, text, text);
    throw Answer{std::move(text).str()};
  } catch (const CLI::ValidationError& error) {
    const std::string text = error.what();
    fail(text.starts_with(": ") ? text.substr(2) : text);  // the option may have no name to show
  } catch (const CLI::ParseError& error) {
    refuse(*app, arguments, error);
  }
  for (const auto& [names, value, about, details] : program.options)
    if (details.given) *details.given = app->count(names) > 0;
  if (program.rest) *program.rest = app->remaining();
  for (const Command& command : program.commands)
    if (app->got_subcommand(command.name)) return command;
  return program;
}

std::vector<std::string> long_options(const Command& program) {
  std::vector<std::string> names = long_names(*app_of(program));
  for (std::string& name : names) name.insert(0, "--");
  return names;
}

std::string similar_option(const Command& program, const std::string& option) {
  return similar_to(*app_of(program), option);
}

std::vector<OptionText> option_texts(const Command& program, const Command* subcommand) {
  const std::unique_ptr<CLI::App> all = app_of(program);
  const CLI::App& app = subcommand ? *all->get_subcommand(subcommand->name) : *all;
  const CLI::Formatter format;
  std::vector<OptionText> texts;
  for (const bool positional : {true, false})
    for (const CLI::Option* option : app.get_options([&](const CLI::Option* o) {
           return !o->get_group().empty() && (positional ? o->get_positional() : o->nonpositional());
         }))
      texts.push_back({format.make_option_name(option, positional) + format.make_option_opts(option),
                       option->get_description()});
  return texts;
}

}  // namespace flatshard
