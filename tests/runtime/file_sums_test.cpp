#include "runtime/file_sums.h"

#include <filesystem>
#include <fstream>

#include "runtime/crc64.h"
#include "runtime/parallel.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// Two whole blocks and a part of a third.
std::string write_blocks(const std::string& path) {
  std::string bytes(static_cast<size_t>(2 * kSumBlockBytes + 1000), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 7);
  std::ofstream(path, std::ios::binary) << bytes;
  return bytes;
}

}  // namespace

TEST_CASE("the sums of a file are the CRCs of its blocks, on any number of threads and in any shares") {
  const std::string path = "file_sums_blocks", bytes = write_blocks(path);
  const InputFile file(path);
  FileSums expected;
  for (size_t at = 0; at < bytes.size(); at += size_t{kSumBlockBytes})
    expected.push_back(crc64(std::as_bytes(std::span(bytes).subspan(at))
                                 .first(std::min(bytes.size() - at, size_t{kSumBlockBytes}))));
  REQUIRE(expected.size() == 3);
  const int threads = thread_count();
  for (const int count : {1, 3}) {
    set_thread_count(count);
    CHECK(sum_blocks(file) == expected);
  }
  set_thread_count(threads);
  CHECK(sum_blocks(file, 0, 2) == FileSums{expected[0], expected[2]});
  CHECK(sum_blocks(file, 1, 2) == FileSums{expected[1]});
  CHECK(sum_blocks(file, 3, 4).empty());
  std::filesystem::resize_file(path, 5000);
  CHECK(test::error_of([&] { sum_blocks(file); }).find("must not change while it is read") !=
        std::string::npos);
}

TEST_CASE("sums are known while their object lives, for one version of a file") {
  const std::string path = "file_sums_known";
  std::ofstream(path) << "text";
  const InputFile file(path);
  const FileSums other{7};
  {
    KnownSums known;
    known.add(version_of(file), other);
    CHECK(sums_of(file) == other);
    FileVersion later = version_of(file);
    ++later.changed;
    CHECK(later != version_of(file));
    KnownSums of_later;
    of_later.add(later, {8});
    CHECK(sums_of(file) == other);
  }
  CHECK(sums_of(file) == sum_blocks(file));
}

TEST_CASE("a write that restores the time of modification makes another version") {
  const std::string path = "file_sums_version";
  std::ofstream(path) << "text";
  const FileVersion before = version_of(InputFile(path));
  const auto modified = std::filesystem::last_write_time(path);
  FileVersion after = before;
  while (after.changed == before.changed) {  // until the clock of the file system has moved
    std::ofstream(path) << "test";
    std::filesystem::last_write_time(path, modified);
    after = version_of(InputFile(path));
  }
  CHECK(after.size == before.size);
  CHECK(after.modified == before.modified);
  CHECK(after.inode == before.inode);
  CHECK(after != before);
  CHECK(before.path == std::filesystem::canonical(path));
}
