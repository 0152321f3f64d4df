// The pages of this tree name only what exists: links, files, config keys, the symbols of TOUR.md, and the
// bytes of its memory plan.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/gemm_tile.h"
#include "runtime/text.h"
#include "source_dir.h"
#include "tests/test.h"
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
  for (const char* folder : {"tests", "train", "hub", "text", "tools"})
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

TEST_CASE("every config key that a page names exists") {
  Config config;
  std::set<std::string> keys, sections;
  for (const Field& field : fields(config)) {
    for (size_t dot = field.key.find('.'); dot != field.key.npos; dot = field.key.find('.', dot + 1))
      sections.insert(field.key.substr(0, dot));
    keys.insert(field.key);
  }
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
  config.run.device = "cpu";
  size_t explained = 0;
  for (const MemoryRow& row : plan_run(set_up(config, 4), 0).memory) {
    if (row.what.empty()) continue;  // the sum
    // Processors with bf16 products need no copies in fp32; the tour has the bytes of those without.
    if (row.name == "scratch" && has_fast_bf16_tiles()) continue;
    const std::string line = str("| ", row.name, " | ", with_commas(row.bytes), " |");
    CAPTURE(line);
    CHECK(tour.find(line) != tour.npos);
    ++explained;
  }
  CHECK(explained > 5);
}
