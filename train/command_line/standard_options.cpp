#include "train/command_line/standard_options.h"

#include <utility>

#include <CLI/CLI.hpp>

#include "runtime/version.h"
#include "train/command_line/bash_completion.h"
#include "train/command_line/man_page.h"

namespace flatshard {

void add_standard_options(CLI::App& app, std::vector<Field> keys) {
  app.set_version_flag(
      "--version", [&app] { return version_text(app.get_name()); },
      "print version, revision and the libraries of this build, and exit");
  const auto describe = [&app, keys = std::move(keys)](const std::string& form) {
    throw CLI::CallForVersion(form == "man" ? man_page(app, keys) : bash_completion(app, keys), 0);
  };
  app.add_option_function<std::string>("--describe", describe, "print the man page or the bash completion")
      ->check(CLI::IsMember({"man", "bash"}))
      ->group("");
}

}  // namespace flatshard
