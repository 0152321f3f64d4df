#include "train/command_line/command.h"

#include <regex>
#include <set>
#include <sstream>

#include "runtime/version.h"
#include "tests/process.h"
#include "tests/test.h"
#include "train/config/fields.h"

using namespace flatshard;
using namespace flatshard::test;

namespace {

std::string output_of(const std::string& command) {
  const Finished finished = run_command(command);
  REQUIRE_MESSAGE(finished.exit_code == 0, command, ": ", finished.output);
  return finished.output;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The long options that --help shows: "--dtype".
std::set<std::string> shown_options(const std::string& help) {
  static const std::regex kOption("^  (-[^ ]+,)?(--[a-z][a-z-]*)");
  std::set<std::string> names;
  for (const std::string& line : lines_of(help))
    if (std::smatch match; std::regex_search(line, match, kOption)) names.insert(match[2]);
  return names;
}

// What bash offers for the last of some words of a command line.
std::string offered(const std::string& program, const std::string& words) {
  return output_of(str("@", program, " --describe bash >completion-", program, " && bash -c '. ./completion-",
                       program, "; COMP_WORDS=(", words,
                       "); COMP_CWORD=$((${#COMP_WORDS[*]} - 1)); _flatshard_", program,
                       "; echo \"${COMPREPLY[*]}\"'"));
}

}  // namespace

TEST_CASE("every program answers --version with its name, the version and the libraries of the build") {
  std::vector<std::string> programs = installed_programs();
  REQUIRE(programs.size() >= 5);
  for (const std::string& program : programs) {
    const std::vector<std::string> lines = lines_of(output_of(str("@", program, " --version")));
    REQUIRE(lines.size() == 16);
    CHECK(lines[0].starts_with(str(program, " (Flatshard) ", version_number())));
    CHECK(lines[1].starts_with("compiler  "));
    CHECK(lines[2].starts_with("CUDA      "));
    CHECK(lines[11].starts_with("Arrow     "));
  }
}

TEST_CASE("the man page and the completion of every program contain every option of its --help") {
  for (const std::string& program : installed_programs()) {
    CAPTURE(program);
    const std::string page = output_of(str("@", program, " --describe man"));
    const std::string completion = output_of(str("@", program, " --describe bash"));
    const std::set<std::string> options = shown_options(output_of(str("@", program, " --help")));
    REQUIRE(options.size() >= 2);
    for (const std::string& option : options) {
      CAPTURE(option);
      CHECK(page.find(std::regex_replace(option, std::regex("-"), "\\-")) != page.npos);
      CHECK(std::regex_search(completion, std::regex(str("words=\"([^\"]* )?", option, "[ \"]"))));
    }
  }
}

TEST_CASE("every config key is in the man page and the completion of train") {
  const std::string page = output_of("@train --describe man"),
                    completion = output_of("@train --describe bash");
  Config defaults;
  for (const Field& field : fields(defaults)) {
    CAPTURE(field.key);
    CHECK(page.find(str(".B \\-\\-", field.key, '\n')) != page.npos);
    CHECK(completion.find(str(" --", field.key, "=")) != completion.npos);
  }
}

TEST_CASE("a man page contains only the macros that it means") {
  static const std::set<std::string> macros{".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".BR", ".EX", ".EE"};
  for (const std::string& program : installed_programs())
    for (const std::string& line : lines_of(output_of(str("@", program, " --describe man")))) {
      CAPTURE(line);
      CHECK(!line.starts_with('\''));
      if (line.starts_with('.')) CHECK(macros.contains(line.substr(0, line.find(' '))));
    }
}

TEST_CASE("completion offers keys, the values of a key, subcommands and a subcommand's options") {
  CHECK(offered("train", "train my.toml --run.dev") == "--run.device=\n");
  CHECK(offered("train", "train my.toml --run.device = c") == "cpu cuda\n");
  CHECK(offered("train", "train --train.recompute =") == "false true selective except_attention\n");
  CHECK(offered("ckpt", "ckpt ver") == "verify\n");
  CHECK(offered("ckpt", "ckpt export a --dt") == "--dtype\n");
  CHECK(offered("ckpt", "ckpt export a --dtype b") == "bf16\n");
}

TEST_CASE("completion leaves other words to file names") {
  CHECK(offered("train", "train my") == "\n");
  CHECK(offered("train", "train --data.train = a") == "\n");
  CHECK(offered("ckpt", "ckpt verify ru") == "\n");
}

TEST_CASE("--describe refuses an unknown form") {
  const Finished finished = run_command("@ckpt --describe html");
  CHECK(finished.exit_code == 2);
  CHECK(finished.output.find("ckpt: html not in {man,bash}") != std::string::npos);
}
