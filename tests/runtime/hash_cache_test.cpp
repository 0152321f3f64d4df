#include "runtime/hash_cache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kSecond = 1'000'000'000;
const FileVersion kVersion{.path = "/a file", .size = 5, .modified = 6, .changed = 7, .inode = 8};

}  // namespace

TEST_CASE("a kept hash is found for this version of the file alone") {
  fs::remove_all("hash_cache");
  const HashCache cache("hash_cache/hashes");
  CHECK(!cache.find(kVersion));
  cache.add(kVersion, "aa", 3 * kSecond);
  cache.add({.path = "/another", .size = 5, .modified = 6, .changed = 7, .inode = 8}, "bb", 3 * kSecond);
  CHECK(cache.find(kVersion) == "aa");
  for (const auto& change : {+[](FileVersion& v) { v.path = "/other file"; },
                             +[](FileVersion& v) { ++v.size; }, +[](FileVersion& v) { ++v.modified; },
                             +[](FileVersion& v) { ++v.changed; }, +[](FileVersion& v) { ++v.inode; }}) {
    FileVersion other = kVersion;
    change(other);
    CHECK(!cache.find(other));
  }
  FileVersion later = kVersion;
  later.changed = 9;
  cache.add(later, "cc", 3 * kSecond);
  CHECK(cache.find(later) == "cc");
  CHECK(!cache.find(kVersion));  // one version of each file is kept
}

TEST_CASE("no hash is kept of a file that may change again at the same time") {
  fs::remove_all("hash_cache_new");
  const HashCache cache("hash_cache_new/hashes");
  cache.add(kVersion, "aa", 2 * kSecond);
  CHECK(!cache.find(kVersion));
}

TEST_CASE("a damaged line of kept hashes does not count, and others do") {
  fs::remove_all("hash_cache_damaged");
  const std::string path = "hash_cache_damaged/hashes";
  const HashCache cache(path);
  cache.add(kVersion, "1a2b", 3 * kSecond);
  std::string text = read_whole_file(path, 1000);
  text[text.find("1a2b")] = '0';
  FileVersion other = kVersion;
  other.path = "/other";
  cache.add(other, "3c", 3 * kSecond);
  write_whole_file(path, text + read_whole_file(path, 1000).substr(text.size()));
  CHECK(!cache.find(kVersion));
  CHECK(cache.find(other) == "3c");
}

TEST_CASE("hashes that cannot be kept are no failure") {
  std::ofstream("hash_cache_file") << "no folder";
  HashCache("hash_cache_file/hashes").add(kVersion, "aa", 3 * kSecond);
  CHECK(!HashCache("hash_cache_file/hashes").find(kVersion));
  HashCache("").add(kVersion, "aa", 3 * kSecond);
  CHECK(!HashCache("").find(kVersion));
}

TEST_CASE("the file of kept hashes does not grow without bound") {
  fs::remove_all("hash_cache_many");
  fs::create_directory("hash_cache_many");
  std::string old;
  for (int i = 0; i < 5000; ++i) old += "0123456789abcdef aa 1 2 3 4 /file" + std::to_string(i) + "\n";
  write_whole_file("hash_cache_many/hashes", old);
  const HashCache cache("hash_cache_many/hashes");
  cache.add(kVersion, "aa", 3 * kSecond);
  CHECK(cache.find(kVersion) == "aa");
  CHECK(fs::file_size("hash_cache_many/hashes") < old.size() / 2);
}
