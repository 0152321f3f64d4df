// Every instruction form in the kernels of this program appears in a test.

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "ptx_vm/registry.h"
#include "source_dir.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

std::string text_of_tests() {
  std::ostringstream all;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(kSourceDir) + "/ptx_vm/tests"))
    if (entry.path().filename().string().ends_with("_test.cpp")) all << std::ifstream(entry.path()).rdbuf();
  return all.str();
}

// The test of warpgroup products sweeps the width, so it composes the form from the parts before and after
// the width.
std::vector<std::string> parts_of(const std::string& form) {
  if (!form.starts_with("wgmma.mma_async")) return {form};
  const size_t width = form.find(".m64n") + 5, behind = form.find('k', width);
  return {form.substr(0, width), form.substr(behind)};
}

// As a whole word: "ld.u32" is not part of "ld.u32.x".
bool stands_in(const std::string& text, const std::string& form) {
  for (size_t at = 0; (at = text.find(form, at)) != text.npos; at += form.size()) {
    const char next = at + form.size() < text.size() ? text[at + form.size()] : ' ';
    if (!std::isalnum(static_cast<unsigned char>(next)) && next != '.' && next != '_' && next != ':')
      return true;
  }
  return false;
}

}  // namespace

TEST_CASE("every instruction form in the program's kernels has an opcode test") {
  std::map<std::string, std::string> kernel_of_form;
  for (const LoadedKernel& kernel : load_everything())
    for (const std::string& form : kernel.forms) kernel_of_form.emplace(form, kernel.name);
  CHECK(kernel_of_form.size() > 150);
  const std::string tests = text_of_tests();
  for (const auto& [form, kernel] : kernel_of_form) {
    CAPTURE(kernel);
    CAPTURE(form);
    for (const std::string& part : parts_of(form)) CHECK(stands_in(tests, part));
  }
}
