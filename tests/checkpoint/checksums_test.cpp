#include "checkpoint/checksums.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "runtime/crc64.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int64_t kBlock = BlockSums::kBlockBytes;

std::string some_bytes(int64_t size) {
  std::string text(static_cast<size_t>(size), '\0');
  uint64_t state = 1;
  for (char& c : text)
    c = static_cast<char>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
  return text;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("a CRC-64 has the standard's check value, and extends over zeros as if they were added") {
  CHECK(crc64(bytes_of("123456789")) == 0x995dc9bbdf1939fa);
  const std::string text = some_bytes(1000);
  const uint64_t sum = crc64_add(0, bytes_of(text));
  for (const size_t zeros : {0, 1, 7, 8, 1000, 70000})
    CHECK(crc64_carry(sum, zeros) == crc64_add(sum, bytes_of(std::string(zeros, '\0'))));
}

TEST_CASE("summing many bytes in one call equals summing them one by one, at any alignment") {
  const std::string text = some_bytes(700);
  for (size_t begin = 0; begin < 17; ++begin)
    for (size_t length = 0; begin + length <= text.size(); length += 13) {
      uint64_t one_by_one = 77;
      for (size_t i = begin; i < begin + length; ++i)
        one_by_one = crc64_add(one_by_one, bytes_of(text.substr(i, 1)));
      CHECK(crc64_add(77, bytes_of(text.substr(begin, length))) == one_by_one);
    }
}

TEST_CASE("sums of ranges written by several processes in any order combine to the sum of the file") {
  const std::string text = some_bytes(2 * kBlock + 12345);
  const int64_t size = static_cast<int64_t>(text.size());
  BlockSums whole(size), first(size), second(size);
  whole.add(0, text.data(), size);
  const std::vector<int64_t> cuts{0, 5, kBlock - 1, kBlock + 77, 2 * kBlock, size - 3, size};
  for (size_t i = cuts.size() - 1; i-- > 0;)
    (i % 2 ? first : second).add(cuts[i], text.data() + cuts[i], cuts[i + 1] - cuts[i]);
  first.merge(second.packed());
  CHECK(first.finished() == whole.finished());
  for (size_t i = 0; i < 3; ++i)
    CHECK(whole.finished()[i] == crc64(bytes_of(text.substr(i * size_t{kBlock}, size_t{kBlock}))));
}

TEST_CASE("checksums find a flipped bit, name its block, and round-trip through their file") {
  std::filesystem::create_directories("sums");
  std::string text = some_bytes(kBlock + 100);
  write_file("sums/a", text);
  write_file("sums/b", "short");
  Checksums written;
  written.add("a", text);
  written.add("b", std::string_view("short"));
  write_file("sums/checksums", written.text());
  const Checksums sums = Checksums::read("sums");
  CHECK(sums.text() == written.text());
  sums.check_lengths("sums");
  sums.verify("sums", "a");
  sums.verify("sums", "b");
  text[static_cast<size_t>(kBlock) + 50] ^= 4;
  write_file("sums/a", text);
  const std::string damage = test::error_of([&] { sums.verify("sums", "a"); });
  CHECK(damage.starts_with(str("sums/a: damaged between byte ", kBlock, " and byte ", kBlock + 100, ": ")));
  sums.verify("sums", "b");
  BlockSums found(kBlock + 100);
  found.add(0, text.data(), found.file_bytes());
  CHECK(test::error_of([&] { sums.compare("sums", "a", found.finished()); }) == damage);
  std::filesystem::resize_file("sums/a", 10);
  for (const std::string& error : {test::error_of([&] { sums.verify("sums", "a"); }),
                                   test::error_of([&] { sums.check_lengths("sums"); })})
    CHECK(error == str("sums/a: has 10 bytes, was written with ", kBlock + 100));
}

TEST_CASE("an invalid file of checksums is refused with its line") {
  std::filesystem::create_directories("bad_sums");
  for (const char* line :
       {"0123", "xyz 0 5 a\n", "0 0 a\n", "0 0 5 ../a\n", "0 0 5 \n", "0 5 5 a\n", "0 0 -5 a\n",
        "0 0 99999999 a\n", "0 0 5 a\n0 5 5 a\n", "0 0 99999999999999999999 a\n"}) {
    CAPTURE(line);
    write_file("bad_sums/checksums", line);
    CHECK(test::error_of([] { Checksums::read("bad_sums"); }).starts_with("bad_sums/checksums:"));
  }
}
