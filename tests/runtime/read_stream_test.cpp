#include "runtime/read_stream.h"

#include <filesystem>
#include <vector>

#include "runtime/check.h"
#include "runtime/rng.h"
#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

std::string random_text(int64_t bytes, int stream) {
  const RandomStream random(stream, "read stream");
  std::string text(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(random.bits(static_cast<int64_t>(i)));
  return text;
}

std::string read_text(ReadStream& stream, const FileRange& range) {
  std::string text;
  stream.read(range, [&](int64_t at, std::span<const std::byte> piece) {
    CHECK(at == std::ssize(text));
    CHECK(!piece.empty());
    text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return text;
}

}  // namespace

TEST_CASE("a read stream returns ranges of several files in the order in which they were added") {
  const std::string texts[] = {random_text(13 * kMiB + 77, 1), random_text(5000, 2), random_text(1, 3)};
  std::vector<std::unique_ptr<InputFile>> files;
  for (const std::string& text : texts) {
    const std::string path = str("stream", files.size());
    write_whole_file(path, text);
    files.push_back(std::make_unique<InputFile>(path));
  }
  struct Range {
    size_t file;
    int64_t begin, size;
  };
  const Range ranges[] = {{0, 3 * kMiB - 5, 9 * kMiB},  // larger than all slots together
                          {1, 4096, 904},
                          {2, 0, 1},
                          {0, 12 * kMiB, kMiB + 77},  // to the end of the file
                          {1, 0, 0},
                          {1, 1, 4094},
                          {1, 4095, 3},  // adjacent to the one before it
                          {1, 4095, 3}};
  ReadStream stream;
  for (const Range& r : ranges) stream.add({.file = files[r.file].get(), .begin = r.begin, .size = r.size});
  for (const Range& r : ranges) {
    CAPTURE(r.begin);
    const FileRange range = {.file = files[r.file].get(), .begin = r.begin, .size = r.size};
    const bool same = read_text(stream, range) ==
                      texts[r.file].substr(static_cast<size_t>(r.begin), static_cast<size_t>(r.size));
    CHECK(same);
  }
  CHECK_THROWS_WITH_AS(read_text(stream, {.file = files[2].get(), .begin = 0, .size = 1}),
                       "a read stream is read beyond the last range that was added", Error);
}

TEST_CASE("adjacent ranges may be read in different pieces than they were added in") {
  const std::string text = random_text(3 * kMiB, 4);
  write_whole_file("parts", text);
  const InputFile file("parts");
  ReadStream stream;
  for (const int64_t begin : {int64_t{0}, kMiB, 2 * kMiB})
    stream.add({.file = &file, .begin = begin, .size = kMiB});
  std::string all;
  for (int64_t at = 0, n = 0; at < file.size(); at += n) {
    n = std::min<int64_t>(100001, file.size() - at);
    all += read_text(stream, {.file = &file, .begin = at, .size = n});
  }
  const bool same = all == text;
  CHECK(same);
}

TEST_CASE("a read stream rejects reads out of order, and names a file that was truncated") {
  write_whole_file("order", random_text(3 * kMiB, 5));
  const InputFile file("order");
  {
    ReadStream stream;
    stream.add({.file = &file, .begin = 10, .size = 100});
    CHECK_THROWS_WITH_AS(read_text(stream, {.file = &file, .begin = 11, .size = 1}),
                         "order: byte 11 is read out of order; the next byte of the stream is 10 of order",
                         Error);
    CHECK_THROWS_WITH_AS(stream.add({.file = &file, .begin = 0, .size = 1}),
                         "order: added to a read stream after its first read", Error);
  }
  std::filesystem::resize_file("order", 2 * kMiB + 3);
  ReadStream stream;
  stream.add({.file = &file, .begin = 0, .size = 3 * kMiB});
  CHECK_THROWS_WITH_AS(
      read_text(stream, {.file = &file, .begin = 0, .size = 3 * kMiB}),
      "order: has 2097155 bytes, had 3145728 when it was opened; a file must not change while "
      "it is read",
      Error);
}

TEST_CASE("a read stream may be destroyed partly read or unread") {
  write_whole_file("left", random_text(20 * kMiB, 6));
  const InputFile file("left");
  const FileRange all = {.file = &file, .begin = 0, .size = file.size()};
  ReadStream unread;
  unread.add(all);
  ReadStream begun;
  begun.add(all);
  CHECK(read_text(begun, {.file = &file, .begin = 0, .size = 5}).size() == 5);
}
