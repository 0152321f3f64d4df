#include "runtime/whole_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sys/stat.h>

#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

}  // namespace

TEST_CASE("writing a whole file replaces the previous one and leaves nothing else") {
  fs::create_directory("whole");
  write_whole_file("whole/a.txt", "a longer text");
  write_whole_file("whole/a.txt", std::string("b\0c", 3));
  CHECK(text_of("whole/a.txt") == std::string("b\0c", 3));
  CHECK(std::distance(fs::directory_iterator("whole"), {}) == 1);
}

TEST_CASE("a file that cannot be written is an error that names it, and no temporary file remains") {
  CHECK(test::error_of([] { write_whole_file("no_folder/a.txt", "a"); }) ==
        "no_folder/a.txt: cannot write: No such file or directory");
  fs::create_directories("whole_taken/a.txt");
  CHECK(test::error_of([] { write_whole_file("whole_taken/a.txt", "a"); }) ==
        "whole_taken/a.txt: cannot write: Is a directory");
  CHECK(std::distance(fs::directory_iterator("whole_taken"), {}) == 1);
}

TEST_CASE("two writers of one file do not mix their contents, and the last to finish wins") {
  fs::create_directory("whole_two");
  NewFile first("whole_two/a"), second("whole_two/a");
  first.write("1");
  second.write("22");
  first.write("1");
  CHECK(names_in("whole_two").size() == 2);
  second.finish();
  CHECK(text_of("whole_two/a") == "22");
  first.finish();
  CHECK(text_of("whole_two/a") == "11");
  CHECK(names_in("whole_two") == std::set<std::string>{"a"});
}

TEST_CASE("an unfinished write keeps the previous file, and files of others named .tmp") {
  fs::create_directory("whole_left");
  write_whole_file("whole_left/a", "before");
  std::ofstream("whole_left/a.tmp") << "another's";
  {
    NewFile file("whole_left/a");
    file.write("after");
    file.complete();
  }
  CHECK(text_of("whole_left/a") == "before");
  CHECK(text_of("whole_left/a.tmp") == "another's");
  CHECK(names_in("whole_left") == std::set<std::string>{"a", "a.tmp"});
}

// Not a device: if the check is broken, this test would replace it on the machine.
TEST_CASE("a pipe and a socket are neither written nor replaced, even through a link") {
  fs::create_directory("whole_pipe");
  REQUIRE(mkfifo("whole_pipe/pipe", 0600) == 0);
  fs::create_symlink("pipe", "whole_pipe/link");
  REQUIRE(mknod("whole_pipe/socket", S_IFSOCK | 0600, 0) == 0);
  fs::create_symlink("nothing", "whole_pipe/dangling");
  for (const char* name : {"whole_pipe/pipe", "whole_pipe/link", "whole_pipe/socket"})
    CHECK(test::error_of([&] { write_whole_file(name, "a"); }) ==
          str(name, ": cannot write: is a device, a pipe or a socket, must be a regular file"));
  CHECK(test::error_of([] {
          write_whole_file("whole_pipe/dangling", "a");
        }).starts_with("whole_pipe/dangling: cannot write: is a symbolic link, and leads to no file"));
  CHECK(test::error_of([] { write_whole_file("", "a"); }) == "the name of the file to write is empty");
  CHECK(fs::is_fifo("whole_pipe/pipe"));
  CHECK(fs::is_socket("whole_pipe/socket"));
  CHECK(names_in("whole_pipe") == std::set<std::string>{"pipe", "link", "socket", "dangling"});
}

TEST_CASE("a link is followed, and a name of the maximum length is written") {
  fs::create_directory("whole_link");
  write_whole_file("whole_link/a", "before");
  fs::create_symlink("a", "whole_link/link");
  write_whole_file("whole_link/link", "after");
  CHECK(fs::is_symlink("whole_link/link"));
  CHECK(text_of("whole_link/a") == "after");
  const std::string longest(255, 'n');
  write_whole_file("whole_link/" + longest, "a");
  CHECK(names_in("whole_link") == std::set<std::string>{"a", "link", longest});
}

TEST_CASE("read_whole_file refuses pipes, devices and files beyond the limit") {
  REQUIRE(mkfifo("whole_read_pipe", 0600) == 0);
  CHECK(test::error_of([] { read_whole_file("whole_read_pipe", 100); }) ==
        "whole_read_pipe: not a regular file");
  CHECK(test::error_of([] { read_whole_file("/dev/zero", 100); }) == "/dev/zero: not a regular file");
  write_whole_file("whole_read", std::string("a\0b", 3));
  CHECK(read_whole_file("whole_read", 3) == std::string("a\0b", 3));
  CHECK(test::error_of([] { read_whole_file("whole_read", 2); }) ==
        "whole_read: has 3 bytes, must have at most 2");
}
