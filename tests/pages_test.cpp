// The pages of this tree name only what exists, and so do messages of config keys: links and their headings,
// files, config keys, programs and their options, the symbols of TOUR.md, the bytes of its memory plan, and
// numbers that are constants of the code. The pages of configs have a row for every key.

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "comm/flat_layout.h"
#include "kernels/adamw8bit.h"
#include "runtime/text.h"
#include "source_dir.h"
#include "tests/process.h"
#include "tests/test.h"
#include "text/jinja/jinja_parser.h"
#include "text/jinja/sourced_text.h"
#include "train/config/fields.h"
#include "train/step/training_runtime.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

struct Page {
  std::string path;  // from the root
  std::string text;
  fs::path folder() const { return fs::path(kSourceDir) / fs::path(path).parent_path(); }
};

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_skipped(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.starts_with('.') || name.starts_with("build") || name == "runs" || name == "local";
}

// Every file of the tree, from the root.
const std::set<std::string>& files() {
  static const std::set<std::string> all = [] {
    std::set<std::string> found;
    for (auto it = fs::recursive_directory_iterator(kSourceDir); it != fs::recursive_directory_iterator();
         ++it) {
      if (it->is_directory() && is_skipped(it->path())) it.disable_recursion_pending();
      if (it->is_regular_file()) found.insert(fs::relative(it->path(), kSourceDir).generic_string());
    }
    return found;
  }();
  return all;
}

std::vector<Page> pages() {
  std::vector<Page> found;
  for (const std::string& file : files())
    if (file.ends_with(".md")) found.push_back({file, text_of(fs::path(kSourceDir) / file)});
  return found;
}

// The groups of every match.
std::vector<std::smatch> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return {std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()};
}
std::vector<std::smatch> matches(std::string&&, const std::string&) = delete;  // the matches point into it

// The spans between backticks.
std::vector<std::string> code_spans(const Page& page) {
  std::vector<std::string> found;
  for (const std::smatch& match : matches(page.text, "`([^`\n]+)`")) found.push_back(match[1]);
  return found;
}

// Whether a page may name a file so: from the root, from the page's folder or a top-level one, or a name by
// itself.
bool names_a_file(const Page& page, const std::string& name) {
  const auto is_below = [&](const fs::path& folder) {
    return files().contains((folder / name).lexically_normal().generic_string());
  };
  if (is_below(fs::path(page.path).parent_path()) || is_below("")) return true;
  for (const char* folder : {"tests", "train", "planner", "hub", "text", "tools"})
    if (is_below(folder)) return true;
  return name.find('/') == name.npos &&
         std::any_of(files().begin(), files().end(),
                     [&](const std::string& file) { return file.ends_with('/' + name); });
}

}  // namespace

TEST_CASE("every link of a page leads to a file or folder") {
  CHECK(pages().size() > 20);
  for (const Page& page : pages())
    for (const std::smatch& link : matches(page.text, R"(\]\(([^)#\s]+)[^)]*\))")) {
      const std::string target = link[1];
      if (target.starts_with("http")) continue;
      CAPTURE(page.path);
      CAPTURE(target);
      CHECK(fs::exists(page.folder() / target));
    }
}

namespace {

// The anchors of a page's headings, as GitHub makes them.
std::set<std::string> anchors(const std::string& page) {
  std::set<std::string> found;
  for (const std::smatch& heading : matches(page, R"((?:^|\n)#+ ([^\n]+))")) {
    std::string anchor;
    for (const char c : heading[1].str()) {
      const auto byte = static_cast<unsigned char>(c);
      if (std::isalnum(byte) || c == '-' || c == '_') anchor += static_cast<char>(std::tolower(byte));
      if (c == ' ') anchor += '-';
    }
    found.insert(anchor);
  }
  return found;
}

}  // namespace

TEST_CASE("every link to a part of a page leads to a heading") {
  size_t count = 0;
  for (const Page& page : pages())
    for (const std::smatch& link : matches(page.text, R"(\]\(([^)#\s]*)#([^)\s]+)\))")) {
      const std::string target = link[1], anchor = link[2];
      if (target.starts_with("http")) continue;
      CAPTURE(page.path);
      CAPTURE(target);
      CAPTURE(anchor);
      const fs::path file = target.empty() ? fs::path(kSourceDir) / page.path : page.folder() / target;
      CHECK(anchors(text_of(file)).contains(anchor));
      ++count;
    }
  CHECK(count > 10);
}

TEST_CASE("every source file that a page names exists") {
  size_t count = 0;
  for (const Page& page : pages())
    for (const std::string& span : code_spans(page))
      for (const std::smatch& match : matches(
               span,
               R"((^|[^A-Za-z0-9_./*{}\-])((\.\./)*[a-z0-9_]+(/[a-z0-9_.]+)*\.(h|cpp|cu|cuh|py|jinja))\b)")) {
        CAPTURE(page.path);
        CAPTURE(match[2].str());
        CHECK(names_a_file(page, match[2]));
        ++count;
      }
  CHECK(count > 100);
}

namespace {

struct ConfigKeys {
  ConfigKeys() {
    Config config;
    for (const Field& field : fields(config)) {
      for (size_t dot = field.key.find('.'); dot != field.key.npos; dot = field.key.find('.', dot + 1))
        sections.insert(field.key.substr(0, dot));
      keys.insert(field.key);
    }
  }
  std::set<std::string> keys, sections;
};

// The texts in quotes of C++, with spaces for escapes.
std::string string_literals(const std::string& code) {
  std::string texts;
  for (size_t i = 0; i < code.size(); ++i) {
    const char quote = code[i];
    const bool separates_digits =
        quote == '\'' && i > 0 && std::isalnum(static_cast<unsigned char>(code[i - 1]));
    if (code.compare(i, 2, "//") == 0) i = std::min(code.find('\n', i), code.size() - 1);
    if ((quote != '"' && quote != '\'') || separates_digits) continue;
    for (++i; i < code.size() && code[i] != quote && code[i] != '\n'; ++i) {
      const bool escapes = code[i] == '\\';
      if (quote == '"') texts += escapes ? ' ' : code[i];
      i += escapes ? 1 : 0;
    }
    texts += ' ';
  }
  return texts;
}

}  // namespace

TEST_CASE("every config key that a message names exists") {
  const ConfigKeys known;
  size_t count = 0;
  for (const std::string& file : files()) {
    const std::string folder = file.substr(0, file.find('/'));
    const bool is_read = (file.ends_with(".cpp") || file.ends_with(".h")) && folder != "tests" &&
                         !file.starts_with("train/config/foreign_") &&  // other trainers' keys
                         !file.starts_with("model/names.") &&           // names of parameters
                         !file.starts_with("hub/peft_names.");
    if (!is_read) continue;
    const std::string texts = string_literals(text_of(fs::path(kSourceDir) / file));
    for (
        const std::smatch& match : matches(
            texts,
            R"((?:^|[^A-Za-z0-9_./*-])(?:--)?([a-z]+(?:\.[a-z0-9_]+)+)(?![A-Za-z0-9_/*-]|\.[A-Za-z0-9_]))")) {
      const std::string key = match[1];
      if (!known.sections.contains(key.substr(0, key.find('.'))) || key.ends_with(".log") ||
          key.ends_with(".safetensors"))
        continue;
      // Members of ModelConfig that no key sets; the model's folder does.
      if (key.starts_with("model.vision") || key == "model.rope_sections") continue;
      CAPTURE(file);
      CAPTURE(key);
      CHECK((known.keys.contains(key) || known.sections.contains(key)));
      ++count;
    }
  }
  CHECK(count > 500);
}

TEST_CASE("every config key that a page names exists") {
  const auto [keys, sections] = ConfigKeys();
  size_t count = 0;
  for (const Page& page : pages())
    for (const std::string& span : code_spans(page))
      for (const std::smatch& match :
           matches(span, R"((^|[\s(\[])(--)?([a-z]+(\.[a-z0-9_]+)+)(?=$|[\s=,;)\]]))")) {
        const std::string key = match[3], section = key.substr(0, key.find('.'));
        static const std::regex file_name(
            R"(.*\.(toml|sbatch|json|jsonl|svg|log|html|md|txt|safetensors|tok|csv|weight|bias|h|cpp|cu|cuh|py))");
        if (!sections.contains(section) || std::regex_match(key, file_name)) continue;
        CAPTURE(page.path);
        CAPTURE(key);
        CHECK((keys.contains(key) || sections.contains(key)));
        ++count;
      }
  CHECK(count > 50);
}

TEST_CASE("every config key has a row in a table of the pages of configs") {
  std::string rows;  // their first columns
  for (const Page& page : pages())
    if (page.path.starts_with("configs/"))
      for (const std::smatch& row : matches(page.text, R"(\n\| ([^|\n]+) \|)")) rows += row[1].str() + '\n';
  const ConfigKeys known;
  CHECK(known.keys.size() > 150);
  for (const std::string& key : known.keys) {
    CAPTURE(key);
    CHECK(rows.find(str('`', key, '`')) != rows.npos);
  }
}

TEST_CASE("every link of the tour names a symbol that stands in its file") {
  const std::string tour = text_of(fs::path(kSourceDir) / "TOUR.md");
  size_t count = 0;
  for (const std::smatch& link : matches(tour, R"(\[`([^`\]]+)`\]\(([^)]+)\))")) {
    const std::string symbol = link[1], target = link[2];
    CAPTURE(symbol);
    CAPTURE(target);
    const std::string name = symbol.substr(symbol.rfind(':') == symbol.npos ? 0 : symbol.rfind(':') + 1);
    const bool is_file = fs::path(target).filename() == symbol;
    const bool stands =
        is_file ? fs::exists(fs::path(kSourceDir) / target)
                : std::regex_search(text_of(fs::path(kSourceDir) / target), std::regex("\\b" + name + "\\b"));
    CHECK((stands || fs::path(target).stem() == symbol));
    ++count;
  }
  CHECK(count > 40);
}

TEST_CASE("the words of the tour are at most 25") {
  const std::string tour = text_of(fs::path(kSourceDir) / "TOUR.md");
  const std::string words = tour.substr(tour.find("\n## Words\n"));
  const auto rows =
      std::count(words.begin(), words.end(), '\n') - 4;  // the heading, two empty lines, the table's head
  CHECK(rows > 10);
  CHECK(rows <= 25 + 2);
}

TEST_CASE("the memory plan that the tour explains is that of configs/tiny.toml on four ranks") {
  const std::string tour = text_of(fs::path(kSourceDir) / "TOUR.md");
  Config config = load_config(str(kSourceDir, "/configs/tiny.toml"), {}).config;
  config.run.device = DeviceChoice::cpu;
  size_t explained = 0;
  for (const MemoryRow& row : plan_run(set_up(config, 4), 0).memory) {
    if (row.what.empty()) continue;  // the sum
    // How much scratch a product takes depends on the processor, and on the library.
    const bool varies = row.name == "scratch";
    const std::string line = str("| ", row.name, " | ", varies ? "" : with_commas(row.bytes) + " |");
    CAPTURE(line);
    CHECK(tour.find(line) != tour.npos);
    ++explained;
  }
  CHECK(explained > 5);
}

namespace {

// "a{b,c}" as "ab" and "ac".
std::vector<std::string> expanded(const std::string& name) {
  const size_t open = name.find('{'), close = name.find('}');
  if (open == name.npos || close == name.npos) return {name};
  std::vector<std::string> all;
  std::istringstream parts(name.substr(open + 1, close - open - 1));
  for (std::string part; std::getline(parts, part, ',');)
    for (const std::string& one : expanded(name.substr(0, open) + part + name.substr(close + 1)))
      all.push_back(one);
  return all;
}

// The names in the first columns of the page's tables of files, stems or rooms.
std::vector<std::string> names_in_tables(const Page& page) {
  std::vector<std::string> names;
  std::istringstream lines(page.text);
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    in_table = std::regex_search(line, std::regex(R"(^\| (file|stem|room) \|)")) ||
               (in_table && line.starts_with('|'));
    if (!in_table) continue;
    const std::string first = line.substr(0, line.find('|', 1));
    for (const std::smatch& name : matches(first, "`([^`]+)`"))
      for (const std::string& one : expanded(name[1])) names.push_back(one);
  }
  return names;
}

// A name in a table, where * and X stand for any part of a file's name.
std::string as_pattern(const std::string& name) {
  std::string pattern;
  for (const char c : name) pattern += c == '*' || c == 'X' ? "[^/]*" : c == '.' ? "\\." : std::string(1, c);
  return pattern;
}

// The files in the folder of the page and below, from there.
std::vector<std::string> files_beside(const Page& page) {
  const std::string folder = fs::path(page.path).parent_path().generic_string() + '/';
  std::vector<std::string> found;
  for (const std::string& file : files())
    if (file.starts_with(folder)) found.push_back(file.substr(folder.size()));
  return found;
}

bool is_any(const std::vector<std::string>& all, const std::string& pattern) {
  const std::regex regex(pattern);
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& s) { return std::regex_match(s, regex); });
}

}  // namespace

TEST_CASE("a table of files names what is there, and leaves no source of its folder out") {
  size_t count = 0;
  for (const Page& page : pages()) {
    const std::vector<std::string> names = names_in_tables(page), beside = files_beside(page);
    if (names.empty() || page.path.find('/') == page.path.npos) continue;
    CAPTURE(page.path);
    std::string covered =
        "main";  // what a source may be called: a name in the table, also with an ending _...
    for (const std::string& name : names) {
      CAPTURE(name);
      const std::string pattern = as_pattern(name);
      CHECK((is_any(beside, pattern + (name.ends_with('/') ? ".*" : "(\\.[a-z]+)?")) ||
             names_a_file(page, name)));
      if (!name.ends_with('/')) covered += '|' + as_pattern(fs::path(name).stem().string()) + "(_[a-z_]+)?";
      ++count;
    }
    for (const std::string& span : code_spans(page))
      if (std::regex_match(span, std::regex("[a-z0-9_]+(\\.[a-z]+)?")))
        covered += '|' + fs::path(span).stem().string();
    if (page.text.find("| room |") != page.text.npos)
      continue;  // its rooms have pages or tables of their own
    for (const std::string& file : beside) {
      static const std::set<std::string> kinds{".h", ".cpp", ".cu", ".cuh"};
      const fs::path path(file);
      if (path.has_parent_path() || !kinds.contains(path.extension().string())) continue;
      CHECK_MESSAGE(std::regex_match(path.stem().string(), std::regex(covered)), file, " is in no table");
    }
  }
  CHECK(count > 150);
}

namespace {

// A program, with its subcommand if it has one, and the options that a page gives it.
struct Command {
  std::string program;
  std::vector<std::string> options;
};

std::vector<Command> commands(const Page& page) {
  std::vector<std::string> places = code_spans(page);
  for (const std::smatch& line : matches(page.text, "(?:^|\n)    ([^\n]+)")) places.push_back(line[1]);
  std::vector<Command> found;
  for (const std::string& place : places) {
    // Quoted text may hold another program's options, as in --launch 'mpirun -np 4'.
    const std::string text = std::regex_replace(place, std::regex("'[^']*'|\"[^\"]*\""), "TEXT");
    for (const std::smatch& match : matches(
             text,
             R"((?:^|[\s(]|\./|build/bin/)(train|prepare|generate|evaluate|report|ckpt) ([^|;&(){}<>]*))")) {
      const std::string all = match[2], arguments = all.substr(0, all.find("   "));  // then an explanation
      Command command{match[1], {}};
      std::istringstream words(arguments);
      bool first = true;
      for (std::string word; words >> word; first = false) {
        const bool has_commands = command.program == "ckpt" || command.program == "evaluate";
        if (first && has_commands && std::regex_match(word, std::regex("[a-z-]+")) && word[0] != '-')
          command.program += ' ' + word;
        if (word.starts_with("--") && word.find('.') == word.npos)  // with a dot it is a config key
          command.options.push_back(word.substr(0, word.find_first_of("=,")));
      }
      if (!command.options.empty() || command.program.find(' ') != std::string::npos)
        found.push_back(command);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("every program, command and option that a page shows exists") {
  std::map<std::string, std::string> help;  // by program
  size_t count = 0;
  for (const Page& page : pages())
    for (const Command& command : commands(page)) {
      CAPTURE(page.path);
      CAPTURE(command.program);
      if (!help.contains(command.program)) {
        const test::Finished run = test::run_command("@" + command.program + " --help");
        REQUIRE(run.exit_code == 0);
        help[command.program] = run.output;
      }
      for (const std::string& option : command.options) {
        if (option == "--describe") continue;  // for the build, so --help does not show it
        CAPTURE(option);
        CHECK(std::regex_search(help[command.program], std::regex(option + "(?![a-z-])")));
        ++count;
      }
    }
  CHECK(count > 50);
}

TEST_CASE("BUILDING.md states the least versions that CMake accepts, once each") {
  const std::string cmake = text_of(fs::path(kSourceDir) / "CMakeLists.txt"),
                    page = text_of(fs::path(kSourceDir) / "BUILDING.md");
  const auto least = [&](const std::string& pattern) {
    const auto found = matches(cmake, pattern + R"(([0-9.]+)\b)");
    REQUIRE(found.size() == 1);
    return found.front()[1].str();
  };
  const std::map<std::string, std::string> claims{
      {"GCC ", least("set\\(FLATSHARD_LEAST_GNU ")},
      {"Clang ", least("set\\(FLATSHARD_LEAST_Clang ")},
      {"CUDA toolkit ", least("set\\(FLATSHARD_LEAST_CUDA ")},
      {"`libparquet-dev` ", least("set\\(FLATSHARD_LEAST_ARROW ")},
      {"CMake ", least("cmake_minimum_required\\(VERSION ")}};
  for (const auto& [name, version] : claims) {
    CAPTURE(name);
    const auto stated = matches(page, name + "([0-9.]+) or newer");
    CHECK(stated.size() == 1);
    for (const std::smatch& match : stated) CHECK(match[1] == version);
  }
}

TEST_CASE("quickstart trains on the pages and sources of this tree, and on no library that was fetched") {
  const test::Finished run = test::run_command(
      str("cd ", kSourceDir,
          " && root=$PWD && eval \"$(sed -n 's/^\\(find .*\\) | LC_ALL.*/\\1/p' quickstart)\""));
  std::set<std::string> read, wanted;
  std::istringstream lines(run.output);
  for (std::string line; std::getline(lines, line);)
    read.insert(fs::relative(line, kSourceDir).generic_string());
  for (const std::string& file : files())
    if (file.ends_with(".md") || file.ends_with(".h") || file.ends_with(".cpp")) wanted.insert(file);
  CHECK(wanted.size() > 1000);
  CHECK(read == wanted);
}

TEST_CASE("defaults and limits that pages state are those of the code") {
  Config config;
  std::map<std::string, std::string> defaults = config_values(config);  // as TOML
  const auto unquoted = [&](const std::string& key) {
    return std::regex_replace(defaults.at(key), std::regex("\""), "");
  };
  const std::map<std::string, std::vector<std::string>> claims{
      {"TOUR.md", {str("every parameter at a multiple of ", FlatLayout::kAlignment, " elements")}},
      {"configs/CHECKPOINTS.md",
       {str("every ", std::stoi(unquoted("checkpoint.save_every")), " minutes by default")}},
      {"configs/SHARDING.md", {str('`', defaults.at("parallel.strategy"), "` (the default)")}},
      {"model/README.md", {str("no multiples of ", FlatLayout::kAlignment, " elements")}},
      {"text/chat/README.md",
       {str("| levels of nesting in the source | ", kMostJinjaNesting, " |"),
        str("| bytes of one text | ", SourcedText::kMostBytes >> 20, " MiB |")}},
      {"train/save/README.md",
       {str("such as `", defaults.at("checkpoint.save_every"), "`, the default"),
        str("`checkpoint.keep` (default ", defaults.at("checkpoint.keep"), ")"),
        str("one F32 value for every ", kMomentBlock, " elements")}},
  };
  for (const auto& [path, parts] : claims) {
    const std::string text =
        std::regex_replace(text_of(fs::path(kSourceDir) / path), std::regex("\\s+"), " ");
    for (const std::string& part : parts) CHECK_MESSAGE(text.find(part) != text.npos, path, ": ", part);
  }
}
