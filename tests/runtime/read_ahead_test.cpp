#include "runtime/read_ahead.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("what will be read is announced some way ahead of the reader, and all of it in the end") {
  std::ofstream("read_ahead").put('x');
  constexpr int64_t kMiB = int64_t{1} << 20, kAll = 48 * kMiB + 3;
  std::filesystem::resize_file("read_ahead", kAll);
  const InputFile file("read_ahead");
  ReadAhead ahead;
  for (const auto& [begin, end] : {std::pair{10 * kMiB, 40 * kMiB},
                                   {int64_t{0}, int64_t{0}},
                                   {int64_t{0}, 10 * kMiB},
                                   {40 * kMiB, kAll}})
    ahead.add({.file = &file, .begin = begin, .size = end - begin});
  CHECK(ahead.announced() == 0);
  for (int64_t read = 0; read < kAll;) {
    const int64_t n = std::min(3 * kMiB, kAll - read);
    ahead.reading(n);
    read += n;
    CHECK(ahead.announced() >= std::min(kAll, read + ReadAhead::kAhead));
    CHECK(ahead.announced() <= std::min(kAll, read + ReadAhead::kAhead + kMiB));
  }
  CHECK(ahead.announced() == kAll);
  ahead.reading(kMiB);  // more than was added
  CHECK(ahead.announced() == kAll);
}
