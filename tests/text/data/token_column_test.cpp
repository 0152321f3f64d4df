#include "text/data/token_column.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr const char* kPath = "token_column_test.logprobs";
const std::vector<float> kValues{0, -0.5, 1.25, -3};

std::string error(int64_t tokens = 4, const std::string& identity = "abc") {
  return test::error_of([&] { TokenColumn(kPath, tokens, identity); });
}

void overwrite(int64_t at, char byte) {
  std::fstream file(kPath, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(at);
  file.put(byte);
}

// As earlier versions wrote it.
void write_without_sums() {
  write_token_column(kPath, "abc", kValues);
  std::filesystem::resize_file(kPath, static_cast<uintmax_t>(content_bytes(InputFile(kPath))));
}

}  // namespace

TEST_CASE("a column returns the values written, from any token on") {
  write_token_column(kPath, "abc", kValues);
  CHECK(content_bytes(InputFile(kPath)) == 24 + 8 + 4 * 4);
  CHECK(identity_of_column(kPath) == "abc");
  const TokenColumn column(kPath, 4, "abc");
  CHECK(column.path() == kPath);
  for (size_t begin = 0; begin < 4; ++begin) {
    std::vector<float> values(4 - begin);
    column.read(static_cast<int64_t>(begin), values);
    CHECK(values == std::vector<float>(kValues.begin() + static_cast<std::ptrdiff_t>(begin), kValues.end()));
  }
  std::filesystem::resize_file(kPath, 24 + 8 + 4 * 4);
  std::vector<float> values(1);
  CHECK(test::error_of([&] { column.read(0, values); }).find("must not change") != std::string::npos);
  std::filesystem::remove(kPath);
}

TEST_CASE("a column of other tokens or of another identity is refused") {
  write_token_column(kPath, "abc", kValues);
  CHECK(error() == "");
  CHECK(error(5) ==
        "token_column_test.logprobs: was made for other tokens or weights: for 4 tokens of \"abc\", must be "
        "for "
        "5 of \"abc\": remove it, or make it again");
  CHECK(error(4, "ab").find("must be for 4 of \"ab\"") != std::string::npos);
  std::filesystem::remove(kPath);
}

TEST_CASE("a damaged column is refused with the reason") {
  CHECK(error() == "token_column_test.logprobs: cannot open: No such file or directory");
  write_token_column(kPath, "abc", kValues);
  std::filesystem::resize_file(kPath, 24 + 8 + 4 * 4 - 1);
  CHECK(error() ==
        "token_column_test.logprobs: has 47 bytes, which are not an identity of 3 bytes and 4 values: it is "
        "cut "
        "off or damaged: remove it, or make it again");
  write_token_column(kPath, "abc", kValues);
  overwrite(24 + 8 + 5, 127);  // of a value
  CHECK(error().find("is damaged between byte 0 and byte 48: their CRC is ") != std::string::npos);
  for (const int64_t at :
       {int64_t{8}, int64_t{15}, int64_t{17}, int64_t{23}}) {  // numbers of tokens and bytes
    write_without_sums();
    CHECK(error() == "");
    overwrite(at, 127);
    CHECK(error().find("is cut off or damaged") != std::string::npos);
  }
  overwrite(0, 'X');
  CHECK(error() ==
        "token_column_test.logprobs: is not a column of token values: remove it, or make it again");
  std::filesystem::resize_file(kPath, 3);
  CHECK(error().find("is not a column") != std::string::npos);
  std::filesystem::remove(kPath);
}
