#pragma once
// The command line that a program takes, as data. Parsing, --help, the man page and the completion for bash
// are made from it. Every program also has --help, --version and the hidden --describe (man, bash), for the
// build, which installs man pages and completions.

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/choice.h"

namespace flatshard {

using Arguments = std::vector<std::string>;

// The variable that an option sets. A bool is a flag without a value; numbers of a list are separated by
// commas; a list of texts takes the words up to the next option, and the option may be repeated, or split its
// word at a separator. --help shows the default of a choice.
using OptionValue =
    std::variant<bool*, int*, int64_t*, double*, std::string*, std::optional<int64_t>*,
                 std::optional<std::string>*, std::vector<double>*, std::vector<std::string>*, Choice>;

struct NumberRange {
  double least, most = std::numeric_limits<double>::max();
};

struct OptionDetails {
  std::optional<std::string> type{};  // type of the value in --help: "FILE"; "": none; unset: the default
  bool required = false, shows_default = false, hidden = false;
  std::vector<std::string> choices{};
  std::optional<NumberRange> range{};
  std::optional<char> separator{};               // separator of the texts in one word of a list: ','
  std::vector<std::string> needs{}, excludes{};  // names of options that it needs, or excludes
  bool* given{};                                 // variable of the program for whether the option was given
};

struct Option {
  std::string names;  // "--out", "-0,--null"; a positional argument has no dashes: "RUN"
  OptionValue value;
  std::string about;
  OptionDetails details{};

  bool is_positional() const { return !names.starts_with('-'); }
};

// A key that a program takes as --section.key=value, such as one of its config.
struct Key {
  std::string name;                   // "optimizer.lr"
  std::vector<std::string> values{};  // the values, if they are a fixed set
};

struct Command {
  std::string name, about;
  std::vector<Option> options{};
  std::vector<Command> commands{};  // subcommands, of which one must be given
  std::function<int()> run{};       // returns the exit code
  std::string footer{};             // the end of --help
  std::string full_footer{};        // the end of `--help all` and of the man page; "": that of --help
  std::vector<Key> keys{};
  std::vector<std::string>* rest{};  // gets the arguments that belong to no option; null: they are an Error
};

// The text that --help, --version or --describe asks for; thrown as an exception.
struct Answer {
  std::string text;
};

// Sets the variables of the options. Returns the subcommand that was given, or the program. An Error names an
// unknown command or option, the most similar one, and the list of known ones; or names what is missing.
const Command& parse_arguments(const Command& program, const Arguments& arguments);

// The long options of a program, such as "--resume".
std::vector<std::string> long_options(const Command& program);
// The long option that `option` misspells, whatever dashes it begins with; "" if there is none.
std::string similar_option(const Command& program, const std::string& option);

// A script for bash that completes subcommands, options, config keys and values from fixed sets, for the
// program under its own name and as flatshard-NAME. All other words are completed as file names. The script
// needs nothing but bash.
std::string bash_completion(const Command& program);

// A man page, in the macros of troff: what --help prints, as sections. Lines of the footer that begin with
// one of the program's keys become entries like options.
std::string man_page(const Command& program);

// An option as --help shows it: {"--dtype TEXT:{fp32,bf16}=fp32", "compute dtype"}.
struct OptionText {
  std::string option, about;
};
// The options of the program or of one of its subcommands, positional ones first, without hidden ones.
std::vector<OptionText> option_texts(const Command& program, const Command* subcommand);

}  // namespace flatshard
