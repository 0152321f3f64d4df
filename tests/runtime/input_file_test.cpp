#include "runtime/input_file.h"

#include <filesystem>
#include <fstream>

#include "tests/test.h"

using namespace flatshard;

namespace {

std::string read_text(const InputFile& file, int64_t begin, int64_t count) {
  std::string text(static_cast<size_t>(count), '\0');
  file.read(begin, count, text.data());
  return text;
}

}  // namespace

TEST_CASE("a file is read from any offset, but not beyond its end") {
  std::ofstream("input", std::ios::binary) << "0123456789";
  const InputFile file("input");
  CHECK(file.size() == 10);
  CHECK(read_text(file, 3, 4) == "3456");
  CHECK(read_text(file, 10, 0).empty());
  CHECK(test::error_of([&] { read_text(file, 8, 3); }) == "input: 3 bytes from byte 8 of 10");
  CHECK(test::error_of([&] { read_text(file, -1, 3); }) == "input: 3 bytes from byte -1 of 10");
  const FileRange part{.file = &file, .begin = 2, .size = 5};
  char text[3] = {};
  part.read(2, 3, text);
  CHECK(std::string(text, 3) == "456");
  CHECK(test::error_of([&] { part.read(3, 3, text); }) == "input: 3 bytes from byte 3 of a part of 5");
}

TEST_CASE("a file whose size changes while it is open is an error with both sizes") {
  std::ofstream("input_cut", std::ios::binary) << std::string(5000, 'a');
  const InputFile file("input_cut");
  std::filesystem::resize_file("input_cut", 4500);
  CHECK(read_text(file, 0, 4500) == std::string(4500, 'a'));
  CHECK(test::error_of([&] { read_text(file, 4000, 1000); }) ==
        "input_cut: has 4500 bytes, had 5000 when it was opened; a file must not change while it is read");
  std::filesystem::resize_file("input_cut", 5000);
  file.check_size();
  std::filesystem::resize_file("input_cut", 6000);
  CHECK(test::error_of([&] { file.check_size(); }) ==
        "input_cut: has 6000 bytes, had 5000 when it was opened; a file must not change while it is read");
}

TEST_CASE("anything but a regular file is refused") {
  CHECK(test::error_of([] { InputFile file("input_none"); }) ==
        "input_none: cannot open: No such file or directory");
  CHECK(test::error_of([] { InputFile file("."); }) == ".: not a regular file");
}
