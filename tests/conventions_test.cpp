// The rules of this tree that can be checked mechanically.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "source_dir.h"
#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

struct Source {
  std::string path;    // from the root: "kernels/rmsnorm.cpp"
  std::string folder;  // "kernels"
  std::string text;
  std::vector<std::string> lines;

  bool ends_with(const std::string& ending) const { return path.ends_with(ending); }
  bool is_header() const { return ends_with(".h") || ends_with(".cuh"); }
  bool is_device_code() const { return ends_with(".cu") || ends_with(".cuh"); }
};

Source read_source(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  Source source;
  source.path = fs::relative(file, kSourceDir).generic_string();
  source.folder = source.path.substr(0, source.path.find('/'));
  source.text = {std::istreambuf_iterator<char>(in), {}};
  std::istringstream stream(source.text);
  for (std::string line; std::getline(stream, line);) source.lines.push_back(line);
  return source;
}

const std::vector<std::string>& folders() {
  static const std::vector<std::string> all{"runtime", "kernels", "comm",  "checkpoint", "model",
                                            "text",    "hub",     "train", "planner",    "tools",
                                            "bench",   "ptx_vm",  "tests"};
  return all;
}

const std::vector<Source>& sources() {
  static const std::vector<Source> all = [] {
    std::vector<Source> found;
    for (const std::string& folder : folders()) {
      const fs::path root = fs::path(kSourceDir) / folder;
      if (!fs::exists(root)) continue;
      for (const auto& entry : fs::recursive_directory_iterator(root))
        if (static const std::set<std::string> kinds{".h", ".cpp", ".cu", ".cuh"};
            entry.is_regular_file() && kinds.contains(entry.path().extension().string()))
          found.push_back(read_source(entry.path()));
    }
    return found;
  }();
  return all;
}

// "path:line" of every line that matches, in files the filter accepts.
template <class Filter>
std::vector<std::string> lines_matching(const std::string& pattern, Filter&& accepts) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (const Source& source : sources()) {
    if (!accepts(source)) continue;
    for (size_t i = 0; i < source.lines.size(); ++i)
      if (std::regex_search(source.lines[i], regex)) found.push_back(str(source.path, ':', i + 1));
  }
  return found;
}

bool is_this_file(const Source& s) { return s.path == "tests/conventions_test.cpp"; }

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += item + ' ';
  return text;
}

// The folders that a folder may include.
const std::map<std::string, std::set<std::string>>& allowed_includes() {
  static const std::map<std::string, std::set<std::string>> rules{
      {"runtime", {"runtime"}},
      {"kernels", {"runtime", "kernels"}},
      {"comm", {"runtime", "kernels", "comm"}},
      {"model", {"runtime", "kernels", "model"}},
      {"checkpoint", {"runtime", "checkpoint"}},
      {"text", {"runtime", "text"}},
      {"hub", {"runtime", "kernels", "model", "checkpoint", "text", "hub"}},
      {"train", {"runtime", "kernels", "comm", "model", "checkpoint", "text", "hub", "train"}},
      {"planner", {"runtime", "kernels", "comm", "model", "train", "planner"}},
      {"tools",
       {"runtime", "kernels", "comm", "model", "checkpoint", "text", "hub", "train", "planner", "tools"}},
      {"bench", {"runtime", "kernels", "comm", "text", "train", "tools", "bench"}},
      {"ptx_vm", {"runtime", "tests", "ptx_vm"}},  // of the first two a few headers, see below
      {"tests",
       {"runtime", "kernels", "comm", "model", "checkpoint", "text", "hub", "train", "planner", "tools",
        "bench", "ptx_vm", "tests"}},
  };
  return rules;
}

// The rooms of a folder, lowest first: a room includes itself and the ones before it.
using Rooms = std::vector<std::string>;
const std::map<std::string, Rooms>& rooms() {
  static const std::map<std::string, Rooms> all{
      {"train", {"command_line", "config", "setup", "measure", "step", "plan", "report", "save", "run"}},
      {"planner", {"machines", "times", "simulate", "search", "files", "measure", ""}},
  };
  return all;
}

// "step" for "train/step/engine.h", "" for "planner/planning.h".
std::string room_of(const std::string& path) {
  const size_t begin = path.find('/') + 1, end = path.find('/', begin);
  return end == path.npos ? "" : path.substr(begin, end - begin);
}

// Third-party headers, and the files that may include them.
struct ThirdParty {
  std::string header_pattern, home_pattern;
};
const std::vector<ThirdParty>& third_party() {
  static const std::vector<ThirdParty> rules{
      {"^(cuda|cuda_.*|driver_types|vector_types)\\.h$", "_cuda\\.cpp$|\\.cuh?$|^runtime/cuda_check\\.h$"},
      {"^(dnnl|oneapi/dnnl/.*)", "^kernels/[a-z_]*onednn[a-z_]*\\.(cpp|h)$"},
      {"^cublas", "^(kernels|tests/kernels|ptx_vm|ptx_vm/tests)/cublas|^bench/fp8_cases\\.cpp$"},
      {"^cudnn", "^kernels/cudnn"},
      {"^nccl\\.h$",
       "^comm/nccl_(communicator\\.cpp|windows\\.h)$|^ptx_vm/(nccl|tests/nccl_ranks_cuda)\\.cpp$"},
      {"^mpi\\.h$",
       "^comm/(world|mpi_communicator)\\.cpp$|^comm/mpi_meeting\\.|^bench/plain_mpi\\.cpp$|^ptx_vm/"
       "(nccl|tests/nccl_ranks_cuda)\\.cpp$"},
      {"^omp\\.h$", "^kernels/gemm_onednn\\.cpp$"},
      {"^doctest/", "^tests/"},
      {"^pcre2\\.h$", "^text/words/regex_pcre2\\.cpp$"},
      {"^utf8proc\\.h$", "^text/words/unicode_utf8proc\\.cpp$"},
      {"^zlib\\.h$", "^text/input/gzip_zlib\\.cpp$"},
      {"^zstd\\.h$", "^text/input/zstd_libzstd\\.cpp$"},
      {"^(arrow|parquet)/", "^text/input/table_arrow\\.cpp$"},
      {"^(jpeglib|jerror)\\.h$", "^text/images/jpeg_libjpeg\\.cpp$"},
      {"^png\\.h$", "^text/images/png_libpng\\.cpp$"},
      {"^webp/", "^text/images/webp_libwebp\\.cpp$"},
      {"^yaml\\.h$", "^train/config/yaml_libyaml\\.cpp$"},
      {"^nlohmann/(?!json_fwd)", "^runtime/json\\.h$"},
      {"^nlohmann/json_fwd\\.hpp$",
       "^runtime/json_reader\\.h$|^text/(chat/image_parts|input/null_members)\\.h$"},
      {"^CLI/", "^train/command_line/command\\.cpp$"},
      {"^toml\\+\\+/", "^(train/config/config_toml|planner/files/cluster_file)\\.cpp$"},
      {"^[a-z0-9]*mmintrin\\.h$|^immintrin\\.h$",
       "^kernels/(simd|simd_math|tile_product)\\.h$|^runtime/crc64\\.cpp$"},
  };
  return rules;
}

std::vector<std::string> includes_of(const Source& source, char open, char close) {
  std::vector<std::string> found;
  const std::regex regex(str("^\\s*#\\s*include\\s*", open, "([^", close, "]+)", close));
  for (const std::string& line : source.lines)
    if (std::smatch match; std::regex_search(line, match, regex)) found.push_back(match[1]);
  return found;
}

bool may_include(const Source& source, const std::string& include) {
  static const std::set<std::string> generated{"build_config.h", "build_info.h", "nvcc.h", "revision.h",
                                               "source_dir.h"};
  if (generated.contains(include)) return true;
  const std::string folder = include.substr(0, include.find('/'));
  return allowed_includes().at(source.folder).contains(folder);
}

}  // namespace

TEST_CASE("the tree is read: every folder that exists has sources") {
  CHECK(sources().size() > 20);
  for (const std::string& folder : folders())
    if (fs::exists(fs::path(kSourceDir) / folder))
      CHECK(std::any_of(sources().begin(), sources().end(),
                        [&](const Source& s) { return s.folder == folder; }));
}

TEST_CASE("a folder includes only the folders that the architecture allows") {
  for (const Source& source : sources())
    for (const std::string& include : includes_of(source, '"', '"')) {
      CAPTURE(source.path);
      CAPTURE(include);
      CHECK(may_include(source, include));
    }
}

TEST_CASE("a room of train/ or planner/ includes only the rooms before it, so there is no cycle") {
  const auto level = [&](const std::string& folder, const std::string& path) {
    const Rooms& of_folder = rooms().at(folder);
    const auto found = std::find(of_folder.begin(), of_folder.end(), room_of(path));
    REQUIRE_MESSAGE(found != of_folder.end(), path, " is in no room of ", folder);
    return found - of_folder.begin();
  };
  for (const Source& source : sources()) {
    if (!rooms().contains(source.folder)) continue;
    for (const std::string& include : includes_of(source, '"', '"')) {
      if (!include.starts_with(source.folder + '/')) continue;
      CAPTURE(source.path);
      CAPTURE(include);
      CHECK(level(source.folder, include) <= level(source.folder, source.path));
    }
  }
}

TEST_CASE("the simulation of planner/ includes nothing that reads files or communicates with ranks") {
  const std::set<std::string> simulation{"machines", "times", "simulate", "search"},
      of_train{"config", "setup", "measure", "step"};
  for (const Source& source : sources()) {
    if (source.folder != "planner" || !simulation.contains(room_of(source.path))) continue;
    for (const std::string& include : includes_of(source, '"', '"')) {
      const std::string folder = include.substr(0, include.find('/'));
      CAPTURE(source.path);
      CAPTURE(include);
      CHECK((folder == "runtime" || folder == "planner" ||
             (folder == "train" && of_train.contains(room_of(include)))));
      CHECK(include != "runtime/whole_file.h");
    }
  }
}

TEST_CASE("a third-party header is included only at its home") {
  for (const Source& source : sources())
    for (const std::string& include : includes_of(source, '<', '>'))
      for (const ThirdParty& rule : third_party()) {
        if (!std::regex_search(include, std::regex(rule.header_pattern))) continue;
        CAPTURE(source.path);
        CAPTURE(include);
        CHECK(std::regex_search(source.path, std::regex(rule.home_pattern)));
      }
}

// It is a product of its own. Its tests run in our harness; its example is a program of another project.
TEST_CASE("the PTX machine includes nothing of ours but errors") {
  static const std::set<std::string> of_tests{"tests/process.h", "tests/test.h", "nvcc.h", "source_dir.h"};
  size_t errors = 0;
  for (const Source& source : sources()) {
    if (source.folder != "ptx_vm") continue;
    const bool is_test = source.path.starts_with("ptx_vm/tests/"),
               is_example = source.path.starts_with("ptx_vm/example/");
    CAPTURE(source.path);
    for (const std::string& include : includes_of(source, '"', '"')) {
      CAPTURE(include);
      const bool is_own =
          include.starts_with("ptx_vm/") && (is_test || !include.starts_with("ptx_vm/tests/"));
      CHECK((is_own || include == "runtime/check.h" || (is_test && of_tests.contains(include))));
      CHECK(!is_example);
      errors += include == "runtime/check.h";
    }
  }
  CHECK(errors > 10);
}

TEST_CASE("tests outside of tests/ptx_vm include one header of it, and none of the PTX machine") {
  for (const Source& source : sources()) {
    if (source.path.starts_with("tests/ptx_vm/") || source.folder == "ptx_vm") continue;
    CAPTURE(source.path);
    for (const std::string& include : includes_of(source, '"', '"')) {
      CHECK((!include.starts_with("tests/ptx_vm/") || include == "tests/ptx_vm/every_order.h"));
      CHECK(!include.starts_with("ptx_vm/"));
    }
  }
}

TEST_CASE("conditional compilation is limited to the files for instruction sets and library versions") {
  const auto found = lines_matching("^\\s*#\\s*(if|ifdef|ifndef|elif)\\b", [](const Source& s) {
    static const std::set<std::string> homes{"kernels/simd.h",
                                             "kernels/simd_math.h",
                                             "kernels/tile_product.h",
                                             "kernels/gemm_onednn.cpp",
                                             "comm/nccl_windows.h",
                                             "runtime/crc64.cpp",
                                             "tests/kernels/gemm_tile_test.cpp"};
    return !homes.contains(s.path) && !is_this_file(s);
  });
  CHECK_MESSAGE(found.empty(), joined(found));
}

TEST_CASE("there are no macros") {
  const auto found =
      lines_matching("^\\s*#\\s*define\\b", [](const Source& s) { return s.path != "tests/main.cpp"; });
  CHECK_MESSAGE(found.empty(), joined(found));
}

TEST_CASE("kernels are launched only in .cu files") {
  const auto found =
      lines_matching("<<<", [](const Source& s) { return !s.is_device_code() && !is_this_file(s); });
  CHECK_MESSAGE(found.empty(), joined(found));
}

TEST_CASE("streams are made only by programs, the trainer and tests") {
  const auto found = lines_matching("\\bStreamSet\\s+[a-z_]+[\\({]", [](const Source& s) {
    if (s.path == "comm/transport.cpp") return false;  // for MPI calls that no other work overlaps
    return s.folder == "kernels" || s.folder == "model" || s.folder == "comm" || s.folder == "checkpoint";
  });
  CHECK_MESSAGE(found.empty(), joined(found));
}

TEST_CASE("events are recorded and waited for only at their home") {
  const auto found = lines_matching("\\.(record|wait)\\(", [](const Source& s) {
    static const std::set<std::string> homes{
        "runtime/stream.cpp",         "runtime/stream_worker.cpp",      "runtime/graph.cpp",
        "runtime/parallel.cpp",       "runtime/read_stream.cpp",        "comm/sharded_unit.cpp",
        "comm/shard_placement.cpp",   "comm/state_pages.cpp",           "comm/pipe.cpp",
        "text/data/image_loader.cpp", "train/step/activation_pages.cpp"};
    return s.folder != "tests" && s.folder != "ptx_vm" && !homes.contains(s.path);
  });
  CHECK_MESSAGE(found.empty(), joined(found));
}

// What each file of its own would compile for a second or two.
TEST_CASE("JSON is parsed and written at one place") {
  const auto found = lines_matching("\\.dump\\(|[jJ]son::(sax_)?parse\\(", [](const Source& s) {
    return s.folder != "tests" && s.path != "runtime/json.cpp";
  });
  CHECK_MESSAGE(found.empty(), joined(found));
}

TEST_CASE("a test that needs a GPU belongs to the suite gpu") {
  for (const Source& source : sources()) {
    std::string opening;  // of the test case that a line belongs to
    for (const std::string& line : source.lines) {
      if (line.starts_with("TEST_CASE(")) opening.clear();
      if (opening.find('{') == opening.npos) opening += line;
      if (is_this_file(source) || line.find("skip(\"no GPU") == line.npos) continue;
      CAPTURE(source.path);
      CAPTURE(opening);
      // bench/on_gpu runs the suite gpu, tests/nightly the suite nightly on the PTX machine.
      CHECK((opening.find("test_suite(\"gpu\")") != opening.npos ||
             opening.find("test_suite(\"nightly\")") != opening.npos));
    }
  }
}

TEST_CASE("a header begins with #pragma once and its contract") {
  for (const Source& source : sources()) {
    if (!source.is_header()) continue;
    CAPTURE(source.path);
    REQUIRE(source.lines.size() > 2);
    CHECK(source.lines[0] == "#pragma once");
    CHECK(source.lines[1].starts_with("//"));
  }
}

TEST_CASE("a header has no using-directive") {
  const auto found = lines_matching("^using namespace", [](const Source& s) { return s.is_header(); });
  CHECK_MESSAGE(found.empty(), joined(found));
}

TEST_CASE("no comment contains a TODO") {
  const auto found =
      lines_matching("\\b(TODO|FIXME|XXX)\\b", [](const Source& s) { return !is_this_file(s); });
  CHECK_MESSAGE(found.empty(), joined(found));
}

namespace {

// Whether the tree has a file of this name with any ending or none, or a folder.
bool has_stem(const fs::path& stem) {
  if (fs::exists(stem)) return true;
  const fs::path folder = stem.parent_path();
  return fs::is_directory(folder) &&
         std::any_of(fs::directory_iterator(folder), fs::directory_iterator(),
                     [&](const fs::directory_entry& entry) { return entry.path().stem() == stem.stem(); });
}

// The files in the table of behaviors of tests/README.md, from the root.
std::set<std::string> tests_of_behaviors() {
  const std::string page = read_source(fs::path(kSourceDir) / "tests" / "README.md").text;
  const size_t begin = page.find("\n## Behaviors\n");
  REQUIRE(begin != page.npos);
  std::istringstream rows(page.substr(begin + 1, page.find("\n## ", begin + 1) - begin));
  std::set<std::string> files;
  const std::regex file("`([^`]+_test\\.cpp)`");
  for (std::string row; std::getline(rows, row);) {
    const std::string first = row.substr(0, row.find('|', 1));
    for (std::sregex_iterator it(first.begin(), first.end(), file), end; it != end; ++it)
      files.insert("tests/" + it->str(1));
  }
  return files;
}

}  // namespace

TEST_CASE("a test file tests the source that it mirrors, or is listed as the test of a behavior") {
  std::set<std::string> listed = tests_of_behaviors();
  const std::string ending = "_test.cpp", tests = "tests/";
  size_t mirrors = 0;
  for (const Source& source : sources()) {
    if (!source.ends_with(ending) || source.folder != "tests" || source.path.starts_with("tests/ptx_vm/"))
      continue;
    const std::string stem = source.path.substr(0, source.path.size() - ending.size());
    const bool is_mirror =
        has_stem(fs::path(kSourceDir) / stem.substr(tests.size())) || has_stem(fs::path(kSourceDir) / stem);
    CAPTURE(source.path);
    CHECK(is_mirror != (listed.erase(source.path) > 0));
    mirrors += is_mirror;
  }
  CHECK(mirrors > 100);
  CHECK_MESSAGE(listed.empty(), joined({listed.begin(), listed.end()}), "do not exist");
}

TEST_CASE("every mutation changes code that is there, and names a test") {
  const test::Finished check = test::run_command(str("bash '", kSourceDir, "/tests/mutations/run' --check"));
  CHECK_MESSAGE(check.exit_code == 0, check.output);
}

TEST_CASE("every folder has a README") {
  for (const std::string& folder : folders()) {
    const fs::path root = fs::path(kSourceDir) / folder;
    if (!fs::exists(root)) continue;
    CAPTURE(folder);
    CHECK(fs::exists(root / "README.md"));
  }
}

TEST_CASE("BUILDING.md describes every option of the build and every preset") {
  const std::string page = read_source(fs::path(kSourceDir) / "BUILDING.md").text;
  const auto check_names = [&](const char* file, const std::string& pattern, size_t least) {
    const std::string text = read_source(fs::path(kSourceDir) / file).text;
    const std::regex regex(pattern);
    size_t count = 0;
    for (std::sregex_iterator found(text.begin(), text.end(), regex), end; found != end; ++found, ++count)
      CHECK_MESSAGE(page.find(str('`', (*found)[1], '`')) != page.npos, (*found)[1].str());
    CHECK(count >= least);
  };
  const char* const option = R"((?:option\(|set\((?=[^\n]* CACHE ))(FLATSHARD_[A-Z_]+) )";
  check_names("CMakeLists.txt", option, 9);
  check_names("tests/CMakeLists.txt", option, 1);
  check_names("CMakePresets.json", R"x("configurePreset": "([a-z]+)")x", 5);
}
