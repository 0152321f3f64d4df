#include "runtime/whole_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a whole file replaces the one before it and leaves nothing else") {
  fs::create_directory("whole");
  write_whole_file("whole/a.txt", "a longer text");
  write_whole_file("whole/a.txt", std::string("b\0c", 3));
  CHECK(text_of("whole/a.txt") == std::string("b\0c", 3));
  CHECK(std::distance(fs::directory_iterator("whole"), {}) == 1);
}

TEST_CASE("a file that cannot be written is an error that names it, and leaves nothing unfinished") {
  CHECK(test::error_of([] { write_whole_file("no_folder/a.txt", "a"); }) ==
        "no_folder/a.txt: cannot write: No such file or directory");
  fs::create_directories("whole_taken/a.txt");
  CHECK(test::error_of([] { write_whole_file("whole_taken/a.txt", "a"); }) ==
        "whole_taken/a.txt: cannot write: Is a directory");
  CHECK(std::distance(fs::directory_iterator("whole_taken"), {}) == 1);
}
