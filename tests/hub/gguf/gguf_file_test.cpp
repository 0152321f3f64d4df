#include "hub/gguf/gguf_file.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr char kPath[] = "gguf_file_test.gguf";

// A file with a key of each kind and two tensors.
void write_small() {
  GgufWriter out;
  out.put("text", "größe");
  out.put("flag", true);
  out.put("number", 0.5);
  out.put_size("size", 7);
  out.put("texts", std::vector<std::string>{"a", "", "bc"});
  out.put("numbers", std::vector<float>{1, -2});
  out.put("wholes", std::vector<int32_t>{-1, 3});
  out.put("flags", std::vector<bool>{true, false, true});
  out.add_tensor("matrix", GgmlType::q8_0, {2, 32});
  out.add_tensor("vector", GgmlType::f32, {3});
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 20;
  std::vector<std::byte> blocks(static_cast<size_t>(ggml_bytes(GgmlType::q8_0, 64)));
  encode_ggml(GgmlType::q8_0, values, blocks.data());
  out.begin(kPath);
  out.write(std::span(blocks).first(34));
  out.write(std::span(blocks).subspan(34));
  out.write(std::as_bytes(std::span(values).first(3)));
  out.finish();
}

std::string bytes_of_file() {
  std::ifstream in(kPath, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string error_of_bytes(const std::string& bytes) {
  std::ofstream(kPath, std::ios::binary) << bytes;
  const std::string error = test::error_of([] { GgufFile file(kPath); });
  if (!error.empty()) CHECK(error.starts_with(std::string(kPath) + ": "));
  return error;
}

}  // namespace

TEST_CASE("a GGUF file is read as it was written") {
  write_small();
  CHECK(is_gguf(kPath));
  CHECK_FALSE(is_gguf("no_such.gguf"));
  const GgufFile file(kPath);
  CHECK(file.value<std::string>("text") == "größe");
  CHECK(file.value<bool>("flag"));
  CHECK(file.value<double>("number") == 0.5);
  CHECK(file.value<int64_t>("size") == 7);
  CHECK(file.value<std::vector<std::string>>("texts") == std::vector<std::string>{"a", "", "bc"});
  CHECK(file.value<std::vector<double>>("numbers") == std::vector<double>{1, -2});
  CHECK(file.value<std::vector<int64_t>>("wholes") == std::vector<int64_t>{-1, 3});
  CHECK(file.value<std::vector<int64_t>>("flags") == std::vector<int64_t>{1, 0, 1});
  CHECK(file.find_value<bool>("other") == nullptr);
  CHECK_THROWS_AS(file.value<int64_t>("text"), Error);
  CHECK(gguf_types(file) == "F32 x1, Q8_0 x1");
  REQUIRE(file.find("matrix"));
  CHECK(file.find("matrix")->shape == std::vector<int64_t>{2, 32});
  std::vector<float> all(64), part(5);
  file.read(*file.find("matrix"), 0, 64, all.data());
  CHECK(std::fabs(all[63] - 43) < 0.2f);
  file.read(*file.find("matrix"), 30, 5, part.data());  // across two blocks
  CHECK(part == std::vector<float>(all.begin() + 30, all.begin() + 35));
  file.read(*file.find("vector"), 1, 2, part.data());
  CHECK(part[0] == -19);
  CHECK(part[1] == -18);
}

TEST_CASE("a GGUF file that is cut anywhere is refused") {
  write_small();
  const std::string whole = bytes_of_file();
  for (size_t size = 0; size + 20 < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(error_of_bytes(whole.substr(0, size)) != "");
  }
}

TEST_CASE("lengths, types and offsets of a GGUF file that are impossible are errors") {
  write_small();
  const std::string whole = bytes_of_file();
  const auto with = [&](size_t at, auto number) {
    std::string bytes = whole;
    std::memcpy(bytes.data() + at, &number, sizeof number);
    return error_of_bytes(bytes);
  };
  CHECK(test::missing_from(with(0, '?'), {"is no GGUF file"}) == "");
  CHECK(test::missing_from(with(4, uint32_t{1}), {"GGUF version 1", "2 or 3"}) == "");
  CHECK(test::missing_from(with(8, ~uint64_t{0}), {"18446744073709551615", "bytes follow"}) == "");
  CHECK(test::missing_from(with(16, uint64_t{1} << 40), {"1099511627776", "bytes follow"}) == "");
  const size_t kind = whole.find("text") + 4;
  CHECK(test::missing_from(with(kind, uint32_t{99}), {"text", "type 99"}) == "");
  const size_t matrix = whole.find("matrix") + 6;
  CHECK(test::missing_from(with(matrix, uint32_t{9}), {"matrix", "9 dimensions", "4"}) == "");
  CHECK(test::missing_from(with(matrix + 4, int64_t{33}), {"matrix", "33", "multiple of 32"}) == "");
  CHECK(test::missing_from(with(matrix + 4, int64_t{0}), {"matrix", "impossible"}) == "");
  CHECK(test::missing_from(with(matrix + 12, int64_t{1} << 62), {"matrix", "impossible"}) == "");
  CHECK(test::missing_from(with(matrix + 24, int64_t{1} << 50), {"matrix", "begins at byte"}) == "");
  CHECK(test::missing_from(with(matrix + 24, int64_t{-32}), {"matrix", "begins at byte -32"}) == "");
  // More values than bits follow, of a type whose size is not known.
  std::string large = whole;
  const int64_t rows = int64_t{1} << 33;
  const uint32_t unknown = 99;
  std::memcpy(large.data() + matrix + 12, &rows, sizeof rows);
  std::memcpy(large.data() + matrix + 20, &unknown, sizeof unknown);
  CHECK(test::missing_from(error_of_bytes(large), {"ends within matrix", "274877906944 values", "type 99"}) ==
        "");
  CHECK(with(matrix + 20, uint32_t{16}) == "");  // a type that only reading refuses
  const GgufFile file(kPath);
  std::vector<float> values(1);
  CHECK(test::missing_from(test::error_of([&] { file.read(*file.find("matrix"), 0, 1, values.data()); }),
                           {"matrix", "IQ2_XXS", "Q6_K"}) == "");
}
