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

TEST_CASE("a fingerprint of large files changes with every byte; the form of earlier versions does not") {
  constexpr int64_t kBytes = int64_t{12} << 20;
  const std::string path = written("fingerprint_large", std::string(size_t{kBytes}, 'a')),
                    small = written("fingerprint_small", "one text");
  const auto put = [&](int64_t at, char byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put(byte);
  };
  const std::string before = fingerprint({path}), sampled = sampled_fingerprint({path});
  CHECK(before.starts_with("12,582,912 bytes with block hash "));
  CHECK(sampled.starts_with("12,582,912 bytes with SHA-256 "));
  CHECK(fingerprint({path, small}) != fingerprint({small, path}));
  CHECK(fingerprint({small}) == sampled_fingerprint({small}));
  for (const int64_t at : {int64_t{100000}, kBytes / 2, kBytes - 100000}) {  // between the samples
    put(at, 'b');
    CHECK(sampled_fingerprint({path}) == sampled);
    CHECK(fingerprint({path}) != before);
    CHECK(fingerprint_like(sampled, {path}) == sampled);
    CHECK(fingerprint_like(before, {path}) == fingerprint({path}));
    put(at, 'a');
    CHECK(fingerprint({path}) == before);
  }
}

TEST_CASE(
    "the fingerprint of earlier versions reads 4 MiB of a terabyte, including the first and last block") {
  constexpr uintmax_t kTerabyte = uintmax_t{1} << 40;
  const std::string path = written("fingerprint_terabyte", "");
  std::error_code error;
  std::filesystem::resize_file(path, kTerabyte, error);  // a hole, which takes no room
  if (error) return test::skip("this file system has no files of a terabyte");
  const std::string zeros = sampled_fingerprint({path});
  CHECK(zeros.starts_with("1,099,511,627,776 bytes with SHA-256 "));
  for (const uintmax_t at : {uintmax_t{5}, kTerabyte - 1}) {
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at));
      file.put('x');
    }
    CHECK(sampled_fingerprint({path}) != zeros);
  }
  std::filesystem::remove(path);
}
