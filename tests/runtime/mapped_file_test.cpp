#include "runtime/mapped_file.h"

#include <cstdint>
#include <fstream>
#include <sstream>

#include "tests/test.h"

using namespace flatshard;

namespace {

// How much of the mapping that begins here is in this process's memory, in KiB.
int64_t resident_kib(const void* begin) {
  std::ifstream in("/proc/self/smaps");
  std::ostringstream start;
  start << std::hex << reinterpret_cast<uintptr_t>(begin) << '-';
  bool here = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(start.str())) here = true;
    if (here && line.starts_with("Rss:")) return std::stoll(line.substr(4));
  }
  return -1;
}

int64_t sum_of(const MappedFile& file) {
  int64_t sum = 0;
  for (const std::byte b : file.bytes()) sum += static_cast<int64_t>(b);
  return sum;
}

}  // namespace

TEST_CASE("mapped bytes that are forgotten leave the memory and are read anew") {
  constexpr int64_t kBytes = 1 << 20;
  std::string text;
  for (int64_t i = 0; i < kBytes; ++i) text += static_cast<char>(i % 251);
  std::ofstream("mapped", std::ios::binary) << text;
  const MappedFile file("mapped");
  const int64_t sum = sum_of(file);
  CHECK(resident_kib(file.bytes().data()) == kBytes / 1024);
  forget_pages(file.bytes().subspan(1, 100));  // less than a page
  CHECK(resident_kib(file.bytes().data()) == kBytes / 1024);
  forget_pages(file.bytes());
  CHECK(resident_kib(file.bytes().data()) == 0);
  CHECK(sum_of(file) == sum);
  forget_pages({});
}
