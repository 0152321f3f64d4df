#include "train/command_line/program.h"

#include <sstream>

#include "tests/test.h"

using namespace flatshard;

namespace {

struct Ended {
  int code;
  std::string out, err;
};

// A program with options of every kind.
struct Everything {
  bool flag = false, has_text = false;
  int small = 1;
  int64_t large = 2;
  double number = 3;
  std::string text = "four", word;
  std::optional<int64_t> maybe_number;
  std::optional<std::string> maybe_text;
  std::vector<double> numbers;
  std::vector<std::string> texts, words;

  Command command() {
    return {.name = "everything",
            .about = "Does everything.",
            .options = {{"WORD", &word, "a word", {.type = "", .required = true}},
                        {"WORDS", &words, "more words", {.type = ""}},
                        {"-f,--flag", &flag, "a flag"},
                        {"--small", &small, "from 1 to 9", {.range = NumberRange{1, 9}}},
                        {"--large", &large, "large", {.shows_default = true, .needs = {"--flag"}}},
                        {"--number", &number, "not negative", {.range = NumberRange{0}}},
                        {"--text", &text, "a text", {.choices = {"four", "five"}, .given = &has_text}},
                        {"--maybe-number", &maybe_number, "perhaps a number"},
                        {"--maybe-text", &maybe_text, "perhaps a text", {.excludes = {"--maybe-number"}}},
                        {"--numbers", &numbers, "numbers"},
                        {"--texts", &texts, "texts"}},
            .run = [this] { return small; }};
  }
};

Ended run(const Command& program, const Arguments& arguments, int failure = 1) {
  std::istringstream in;
  std::ostringstream out, err;
  const int code = run_program(program, arguments, {in, out, err}, failure);
  return {code, out.str(), err.str()};
}

std::string error_of(const Arguments& arguments) {
  Everything e;
  const Ended ended = run(e.command(), arguments, 3);
  CHECK(ended.code == 3);
  CHECK(ended.out.empty());
  return ended.err;
}

}  // namespace

TEST_CASE("options of every kind set their variables") {
  Everything e;
  const Ended ended =
      run(e.command(), {"a", "--numbers", "1,2.5", "b", "c", "-f", "--large=-7", "--texts", "x", "--texts",
                        "y", "z", "--small", "9", "--text", "five", "--maybe-number", "8"});
  CHECK_MESSAGE(ended.err.empty(), ended.err);
  CHECK(ended.code == 9);
  CHECK(e.word == "a");
  CHECK(e.words == std::vector<std::string>{"b", "c"});
  CHECK(e.flag);
  CHECK(e.large == -7);
  CHECK(e.number == 3);
  CHECK(e.text == "five");
  CHECK(e.has_text);
  CHECK(e.maybe_number == 8);
  CHECK(!e.maybe_text);
  CHECK(e.numbers == std::vector<double>{1, 2.5});
  CHECK(e.texts == std::vector<std::string>{"x", "y", "z"});
}

TEST_CASE("a mistake on the command line is one line, and the program does not run") {
  CHECK(error_of({}) ==
        "everything: WORD is required; usage: everything WORD WORDS [OPTIONS], see everything "
        "--help\n");
  CHECK(error_of({"a", "--lrage", "1"}) ==
        "everything: --lrage: unknown option; did you mean --large? See everything --help\n");
  CHECK(error_of({"a", "--small", "10"}).find("10 not in range 1 to 9") != std::string::npos);
  CHECK(error_of({"a", "--number", "-1"}).find("not in range") != std::string::npos);
  CHECK(error_of({"a", "--text", "six"}).find("six not in {four,five}") != std::string::npos);
  CHECK(error_of({"a", "--large", "1"}).find("--large requires --flag") != std::string::npos);
  CHECK(error_of({"a", "--maybe-text", "x", "--maybe-number", "1"}).find("excludes") != std::string::npos);
}

TEST_CASE("--help and --version print on standard output, and succeed") {
  Everything e;
  for (const auto& [option, part] : {std::pair{"--help", "--large INT=2 Needs: --flag"},
                                     {"--version", "everything (Flatshard) "},
                                     {"-h", "Does everything."}}) {
    const Ended ended = run(e.command(), {option}, 3);
    CHECK(ended.code == 0);
    CHECK(ended.err.empty());
    CHECK_MESSAGE(ended.out.find(part) != std::string::npos, ended.out);
  }
}

TEST_CASE("an error of a program and lost output are failures of one line") {
  const Command failing{.name = "failing", .about = "", .run = [] { return fail("no\nway"), 0; }};
  const Ended ended = run(failing, {}, 2);
  CHECK(ended.code == 2);
  CHECK(ended.err.starts_with("failing: no"));
  CHECK(ended.err.find('\n') == ended.err.size() - 1);

  std::istringstream in;
  std::ostringstream out, err;
  const Command silent{.name = "silent", .about = "", .run = [&out] {
                         out.setstate(std::ios::badbit);
                         return 0;
                       }};
  CHECK(run_program(silent, {}, {in, out, err}) == 1);
  CHECK(err.str() == "silent: cannot write the output\n");
}

TEST_CASE("subcommands are run by name, and one must be given") {
  const Command program{.name = "both",
                        .about = "",
                        .commands = {{.name = "one", .about = "the first", .run = [] { return 1; }},
                                     {.name = "two", .about = "the second", .run = [] { return 2; }}}};
  CHECK(run(program, {"two"}).code == 2);
  CHECK(run(program, {}).err == "both: a command is missing: one, two; see both --help\n");
  CHECK(run(program, {"tow"}).err ==
        "both: tow: unknown command; did you mean two? The commands are one, two; "
        "see both --help\n");
}
