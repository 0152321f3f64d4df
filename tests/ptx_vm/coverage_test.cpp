// No instruction is taken on trust: each form that the kernels of this program are made of stands in a test.

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "build_config.h"
#include "tests/ptx_vm/registry.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

std::string text_of_tests() {
  std::ostringstream all;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(kSourceDir) + "/tests/ptx_vm"))
    if (entry.path().filename().string().ends_with("_test.cpp")) all << std::ifstream(entry.path()).rdbuf();
  return all.str();
}

// As a whole word: "ld.u32" does not stand in "ld.u32.x".
bool stands_in(const std::string& text, const std::string& form) {
  for (size_t at = 0; (at = text.find(form, at)) != text.npos; at += form.size()) {
    const char next = at + form.size() < text.size() ? text[at + form.size()] : ' ';
    if (!std::isalnum(static_cast<unsigned char>(next)) && next != '.' && next != '_' && next != ':')
      return true;
  }
  return false;
}

}  // namespace

TEST_CASE("every form of instruction in the program's kernels has an opcode test") {
  std::map<std::string, std::string> kernel_of_form;
  for (const LoadedKernel& kernel : load_everything())
    for (const std::string& form : kernel.forms) kernel_of_form.emplace(form, kernel.name);
  CHECK(kernel_of_form.size() > 150);
  const std::string tests = text_of_tests();
  for (const auto& [form, kernel] : kernel_of_form) {
    CAPTURE(kernel);
    CAPTURE(form);
    CHECK(stands_in(tests, form));
  }
}
