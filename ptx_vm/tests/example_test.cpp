// The commands of README.md work, and print what it shows: a program that knows nothing of the machine is
// compiled by nvcc, linked against libptx_vm.a, and run.

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "nvcc.h"
#include "runtime/check.h"
#include "source_dir.h"
#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

const std::string kFolder = "ptx_vm/example/", kArchive = "build-ptx_vm/lib/libptx_vm.a";  // of the page

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string page() {
  std::ostringstream text;
  text << std::ifstream(std::string(kSourceDir) + "/ptx_vm/README.md").rdbuf();
  return text.str();
}

// The command of the page that begins with nvcc, for this build's archive and an example in this folder.
std::string compilation() {
  for (const std::string& line : lines_of(page()))
    if (line.starts_with("    nvcc "))
      return replace_all(replace_all(line, kArchive, "'@../lib/libptx_vm.a'"), kFolder, "");
  return "";
}

// A command of the page, and what the page shows as its output.
struct Shown {
  std::string command, output;
};
std::vector<Shown> shown() {
  std::vector<Shown> all;
  bool is_output = false;
  for (const std::string& line : lines_of(page())) {
    if (line.starts_with("```")) {
      is_output = false;
    } else if (line.starts_with("$ ./")) {
      all.push_back({line.substr(2), ""});
      is_output = true;
    } else if (is_output) {
      all.back().output += line + '\n';
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a program that is built as README.md says prints what it shows") {
  if (!fs::exists(kNvcc)) return test::skip(str("there is no ", kNvcc));
  const std::string source = "sum.cu";
  fs::copy_file(fs::path(kSourceDir) / "ptx_vm" / "example" / source, source,
                fs::copy_options::overwrite_existing);
  const std::string path = "PATH=\"" + fs::path(kNvcc).parent_path().string() + ":$PATH\"";
  REQUIRE(compilation() != "");
  const test::Finished compiled = test::run_command(path + compilation());
  CAPTURE(compiled.output);
  REQUIRE(compiled.exit_code == 0);
  const std::vector<Shown> commands = shown();
  CHECK(commands.size() >= 2);
  const std::string defaults = "for name in $(env | grep -o '^PTX_VM_[A-Z_]*'); do unset $name; done; ";
  for (const Shown& s : commands) {
    CAPTURE(s.command);
    const std::string output = test::run_command(defaults + s.command).output;
    CHECK(replace_all(output, fs::current_path().string() + '/', kFolder) == s.output);
  }
}

TEST_CASE("the machine is a project by itself") {
  if (test::run_command("cmake --version").exit_code != 0) return test::skip("there is no cmake");
  const test::Finished configured = test::run_command(str(
      "PATH=\"", fs::path(kNvcc).parent_path().string(), ":$PATH\" cmake -S '", kSourceDir,
      "/ptx_vm' -B alone -DCUDAToolkit_ROOT='", fs::path(kNvcc).parent_path().parent_path().string(), '\''));
  CAPTURE(configured.output);
  CHECK(configured.exit_code == 0);
}
