#pragma once
// Command lines whose errors say what was probably meant.

#include <string>
#include <vector>

#include "train/config/fields.h"

namespace CLI {
class App;
}

namespace flatshard {

std::vector<std::string> arguments_of(int argc, const char* const* argv);

// Parses the arguments. An Error names an unknown command or option, the most similar one, and what there is;
// or what is missing. --help passes as the parser's own exception.
void parse_arguments(CLI::App& app, const std::vector<std::string>& arguments);

// The long options of a program or command, such as "--resume".
std::vector<std::string> long_options(const CLI::App& app);
// The one of which this option is a misspelling, whatever dashes it begins with; "" if there is none.
std::string similar_option(const CLI::App& app, const std::string& option);

// Declares an option whose value has one of several names. The default is the present value.
void add_choice(CLI::App& app, const std::string& option, const Choice& choice, const std::string& help);

}  // namespace flatshard
