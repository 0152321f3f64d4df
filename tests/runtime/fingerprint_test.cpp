#include "runtime/fingerprint.h"

#include <filesystem>
#include <fstream>

#include "tests/test.h"

using namespace flatshard;

namespace {

std::string written(const std::string& name, const std::string& bytes) {
  std::ofstream(name, std::ios::binary) << bytes;
  return name;
}

}  // namespace

TEST_CASE("a fingerprint tells files apart by size, and small ones by every byte") {
  const std::string a = written("fingerprint_a", "one text"), same = written("fingerprint_same", "one text"),
                    other = written("fingerprint_other", "one test"),
                    empty = written("fingerprint_empty", "");
  CHECK(fingerprint({a}).starts_with("8 bytes with SHA-256 "));
  CHECK(fingerprint({a}) == fingerprint({same}));
  CHECK(fingerprint({a}) != fingerprint({other}));
  CHECK(fingerprint({a, other}) != fingerprint({other, a}));
  CHECK(fingerprint({a, empty}) != fingerprint({a}));
  CHECK(test::error_of([] { fingerprint({"fingerprint_none"}); }) ==
        "fingerprint_none: cannot open: No such file or directory");
}

TEST_CASE("a fingerprint reads 4 MiB of a terabyte, including the first and last block") {
  constexpr uintmax_t kTerabyte = uintmax_t{1} << 40;
  const std::string path = written("fingerprint_large", "");
  std::error_code error;
  std::filesystem::resize_file(path, kTerabyte, error);  // a hole, which takes no room
  if (error) return test::skip("this file system has no files of a terabyte");
  const std::string zeros = fingerprint({path});
  CHECK(zeros.starts_with("1,099,511,627,776 bytes with SHA-256 "));
  for (const uintmax_t at : {uintmax_t{5}, kTerabyte - 1}) {
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at));
      file.put('x');
    }
    CHECK(fingerprint({path}) != zeros);
  }
  std::filesystem::remove(path);
}
