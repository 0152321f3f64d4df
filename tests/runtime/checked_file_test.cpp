#include "runtime/checked_file.h"

#include <filesystem>
#include <fstream>

#include "runtime/file_sums.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// Content of a few bytes more than a block, written in pieces, whose first bytes are written last.
constexpr int64_t kContent = kSumBlockBytes + 1000;

std::string write_checked(const std::string& path, int64_t content = kContent) {
  std::string bytes(static_cast<size_t>(content), '\0');
  for (size_t i = 16; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 5);
  CheckedNewFile file(path);
  for (size_t at = 0, piece = 10; at < bytes.size(); at += piece, piece = piece * 3 % 300'007 + 1)
    file.write(std::string_view(bytes).substr(at, piece));
  if (content > 16) {
    bytes.replace(0, 16, "the first bytes.");
    file.overwrite(bytes.substr(0, 16));
  }
  file.complete();
  file.finish();
  return bytes;
}

void flip(const std::string& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int before = file.get();
  file.seekp(at);
  file.put(static_cast<char>(before ^ 4));
}

}  // namespace

TEST_CASE("a checked file has its content, and sums that fit, at every size") {
  for (const int64_t content : {int64_t{0}, int64_t{17}, kSumBlockBytes - 8, kSumBlockBytes, kContent}) {
    CAPTURE(content);
    const std::string path = "checked_file_sizes", bytes = write_checked(path, content);
    const InputFile file(path);
    CHECK(content_bytes(file) == content);
    const CheckedContent checked = check_content(file, "");
    CHECK(checked.bytes == content);
    CHECK(checked.has_sums);
    std::string read(bytes.size(), '\0');
    file.read(0, content, read.data());
    CHECK(read == bytes);
  }
}

TEST_CASE("every flipped byte of a checked file is found, with its block and what to do") {
  const std::string path = "checked_file_flipped";
  write_checked(path);
  const int64_t size = InputFile(path).size();
  for (const auto& [at, where] : {std::pair<int64_t, std::string>{0, "between byte 0 and byte 4194304: "},
                                  {20, "between byte 0 and byte 4194304: "},
                                  {kSumBlockBytes - 1, "between byte 0 and byte 4194304: "},
                                  {kSumBlockBytes, "between byte 4194304 and byte 4195304: "},
                                  {kContent - 1, "between byte 4194304 and byte 4195304: "},
                                  {kContent, "from byte 4195304 on, do not fit"},
                                  {size - 24, "do not fit"},
                                  {size - 9, "do not fit"}}) {
    CAPTURE(at);
    flip(path, at);
    const std::string error = test::error_of([&] { check_content(InputFile(path), "make it again"); });
    CHECK_MESSAGE(test::missing_from(error, {path + ": is damaged", where, ": make it again"}) == "", error);
    flip(path, at);
    CHECK(check_content(InputFile(path), "").has_sums);
  }
  flip(path, size - 1);  // of what says that there are sums
  CHECK_FALSE(check_content(InputFile(path), "").has_sums);
}

TEST_CASE("known sums of a file are not computed again, and the rest of its content is") {
  const std::string path = "checked_file_known";
  write_checked(path);
  const InputFile file(path);
  KnownSums known;
  FileSums sums = sum_blocks(file);
  sums[1] ^= 1;  // of a block that is not all content
  known.add(version_of(file), sums);
  CHECK(check_content(file, "").has_sums);
}

TEST_CASE("a file without checksums is read as one of an earlier version") {
  const std::string path = "checked_file_plain";
  for (const std::string& bytes : {std::string(), std::string("short"), std::string(100, 'x')}) {
    std::ofstream(path, std::ios::binary) << bytes;
    CHECK(content_bytes(InputFile(path)) == std::ssize(bytes));
    CHECK_FALSE(check_content(InputFile(path), "").has_sums);
  }
}
