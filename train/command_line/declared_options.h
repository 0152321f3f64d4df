#pragma once
// The options that a program has declared, for its man page and its completion.

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace flatshard {

// Without hidden ones.
std::vector<const CLI::Option*> named_options(const CLI::App& app);
std::vector<const CLI::Option*> positional_options(const CLI::App& app);
std::vector<const CLI::App*> subcommands(const CLI::App& app);

// {"-0", "--null"}.
std::vector<std::string> names_of(const CLI::Option& option);

// The permitted values, if they are a fixed set: {"fp32", "bf16"}.
std::vector<std::string> values_of(const CLI::Option& option);

// "flatshard-train": the name of the installed command.
std::string command_name(const CLI::App& app);

}  // namespace flatshard
