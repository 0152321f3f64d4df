#include "checkpoint/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/range_bytes.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr char kPath[] = "safetensors_test.safetensors";

std::string with_length(const std::string& header) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header;
}

void write_file(const std::string& bytes) { std::ofstream(kPath, std::ios::binary) << bytes; }

std::string read_bytes() {
  std::ifstream in(kPath, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The reader's error for a file with these bytes, without the file's name; "" if it is valid.
std::string error_of_file(const std::string& bytes) {
  write_file(bytes);
  const std::string error = test::error_of([] { SafetensorsFile file(kPath); });
  const std::string prefix = std::string(kPath) + ": ";
  if (!error.empty()) CHECK(error.starts_with(prefix));
  return error.empty() ? "" : error.substr(prefix.size());
}
std::string error_of_header(const std::string& header, size_t data_bytes = 0) {
  return error_of_file(with_length(header) + std::string(data_bytes, '\0'));
}

// The file of one process that writes every tensor with the bytes 0, 1, 2, ...
std::string written(const std::vector<SafetensorsSpec>& specs, const SafetensorsLayout::Metadata& metadata) {
  const SafetensorsLayout layout(specs, metadata);
  SafetensorsWriter writer(kPath, layout, true);
  for (size_t i = 0; i < specs.size(); ++i) {
    std::string data;
    for (int64_t j = 0; j < layout.elements(i) * size_of(specs[i].dtype); ++j) data += static_cast<char>(j);
    writer.write(i, 0, data.data(), layout.elements(i));
  }
  writer.finish();
  return read_bytes();
}

}  // namespace

TEST_CASE("safetensors are written with the bytes of the reference implementation") {
  CHECK(written({}, {}) == with_length("{}      "));
  CHECK(written({}, {{"framework", "pt"}}) == with_length("{\"__metadata__\":{\"framework\":\"pt\"}}     "));
  std::string data;
  for (int i = 0; i < 24; ++i) data += static_cast<char>(i);
  CHECK(written({{"attn.0", DType::f32, {1, 2, 3}}}, {}) ==
        with_length("{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}") + data);
  CHECK(written({{"attn0", DType::f32, {1, 1, 2, 3}}}, {}) ==
        with_length("{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,1,2,3],\"data_offsets\":[0,24]}}       ") +
            data);
}

TEST_CASE("tensors round-trip, stored widest dtype first and then by name") {
  const std::vector<SafetensorsSpec> specs{
      {"b", DType::bf16, {3}},   {"z", DType::f32, {2, 2}}, {"a \"quoted\" \xc3\xa9", DType::f16, {}},
      {"a", DType::f32, {0, 7}}, {"bytes", DType::u8, {5}}, {"ints", DType::i32, {1}}};
  const std::string bytes = written(specs, {{"format", "pt"}});
  const SafetensorsLayout layout(specs);
  CHECK(static_cast<int64_t>(bytes.size()) == layout.file_bytes());
  const SafetensorsFile file(kPath);
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : file.entries()) names.push_back(entry.name);
  CHECK(names == std::vector<std::string>{"a", "z", "ints", "b", "a \"quoted\" \xc3\xa9", "bytes"});
  for (size_t i = 0; i < specs.size(); ++i) {
    const SafetensorsEntry* entry = file.find(specs[i].name);
    REQUIRE(entry != nullptr);
    CHECK(entry->dtype == safetensors_name(specs[i].dtype));
    CHECK(entry->shape == specs[i].shape);
    CHECK(layout.offset(i) % size_of(specs[i].dtype) == 0);
    const std::vector<std::byte> found = test::range_bytes(entry->bytes);
    CHECK(std::ssize(found) == layout.elements(i) * size_of(specs[i].dtype));
    for (size_t j = 0; j < found.size(); ++j) CHECK(found[j] == static_cast<std::byte>(j));
  }
  CHECK(file.find("c") == nullptr);
}

TEST_CASE("processes that write ranges of one file produce the bytes of a single writer") {
  const std::vector<SafetensorsSpec> specs{{"w", DType::f32, {4, 8}}, {"b", DType::bf16, {9}}};
  const std::string whole = written(specs, {{"format", "pt"}});
  std::vector<unsigned char> bytes(128);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
  const SafetensorsLayout layout(specs);
  SafetensorsWriter first(kPath, layout, true);
  const SafetensorsLayout same(specs);
  SafetensorsWriter second(kPath, same, false);
  second.write(0, 13, bytes.data() + 13 * 4, 19);
  first.write(0, 0, bytes.data(), 13);
  first.write(1, 2, bytes.data() + 4, 7);
  second.write(1, 0, bytes.data(), 2);
  second.write(1, 9, nullptr, 0);
  first.finish();
  second.finish();
  CHECK(read_bytes() == whole);
}

TEST_CASE("a writer refuses elements outside the file") {
  const SafetensorsLayout layout({{"w", DType::f32, {4}}});
  CHECK(test::error_of([&] { SafetensorsWriter writer("no/such/folder", layout, true); }) ==
        "no/such/folder: cannot write: No such file or directory");
  SafetensorsWriter writer(kPath, layout, true);
  const float data[8]{};
  CHECK(test::error_of([&] { writer.write(0, 2, data, 3); }) ==
        str(kPath, ": \"w\": 3 elements from 2 exceed its 4"));
  CHECK(test::error_of([&] { writer.write(0, -1, data, 1); }) != "");
  CHECK(test::error_of([&] { writer.write(1, 0, data, 1); }) ==
        str(kPath, ": tensor 1 is outside of a layout of 1"));
  const SafetensorsLayout other({{"w", DType::f32, {5}}});
  CHECK(test::error_of([&] { SafetensorsWriter second(kPath, other, false); }) ==
        str(kPath, ": has ", layout.file_bytes(), " bytes, must have ", other.file_bytes()));
  CHECK(test::error_of([] {
          SafetensorsLayout({{"w", DType::f32, {5}}, {"w", DType::bf16, {2}}});
        }) == "safetensors: the name \"w\" appears twice");
  CHECK(test::error_of([] { SafetensorsLayout({{"w", DType::f32, {INT64_MAX, 4}}}); }) != "");
  CHECK(test::error_of([] { SafetensorsLayout({{"w", DType::f32, {INT64_MAX}}}); }) != "");
  CHECK(test::error_of([] {
          SafetensorsLayout({{"\xff", DType::f32, {1}}});
        }).find("not UTF-8") != std::string::npos);
}

TEST_CASE("unusual files that the format allows are read") {
  CHECK(error_of_header("{\"test\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4) == "");
  CHECK(error_of_header("{\"test\":{\"dtype\":\"I64\",\"shape\":[2,2],\"data_offsets\":[0,32]}}", 32) == "");
  CHECK(error_of_header("{\"test\":{\"dtype\":\"I32\",\"shape\":[2,0],\"data_offsets\":[0, 0]}}") == "");
  CHECK(error_of_header("{\"t\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3) == "");
  CHECK(error_of_header("{}\r \t\n") == "");
  CHECK(error_of_header("\t\n{}\r ") == "");
  // Names and bytes may have different orders, and an empty tensor may be anywhere.
  CHECK(error_of_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]},"
                        "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                        "\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}",
                        4) == "");
}

TEST_CASE("a file with inconsistent lengths is refused") {
  const std::string header = "{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";
  const std::string file = with_length(header) + std::string(16, '\0');
  CHECK(error_of_file(file) == "");
  CHECK(error_of_file("") == "header too small: the file has 0 bytes, must have at least 8");
  CHECK(error_of_file(file.substr(0, 8)) == "invalid header length: 60 bytes, but only 0 follow");
  CHECK(error_of_file(std::string("\x3c\0\0\0\0\xff\xff\xff", 8)).starts_with("header too large: "));
  CHECK(error_of_file(file + "extra_bogus_data_for_polyglot_file") ==
        "incomplete buffer: the tensors end at byte 16 of 50");
  CHECK(error_of_file(file.substr(0, file.size() - 2)) ==
        "incomplete buffer: \"test\" ends at byte 16 of 14");
  for (size_t length = 0; length < file.size(); ++length) CHECK(error_of_file(file.substr(0, length)) != "");
}

TEST_CASE("a malformed header is refused") {
  CHECK(error_of_header("\xff") == "invalid header: not UTF-8 at byte 0");
  for (const char* text :
       {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80", "\xf0\x8f\xbf\xbf"})
    CHECK(error_of_header(str("{\"__metadata__\":{\"a\":\"", text, "\"}}"))
              .starts_with("invalid header: not UTF-8"));
  const auto refused = [](const std::string& header, const std::string& with) {
    const std::string error = error_of_header(header);
    CAPTURE(error);
    CHECK(error.find(with) != std::string::npos);
  };
  refused("{", "invalid JSON");
  refused("", "invalid JSON");
  refused("[]", "must be an object");
  refused("{} x", "invalid JSON");
  refused(std::string("{}\0x", 4), "a zero byte at 2");
  refused("\xef\xbb\xbf{}", "byte order mark");
  refused("{\"a\":[[[[[[]]]]]]}", "nested more than 3 levels deep");
  refused(std::string(100000, '['), "nested more than 3 levels deep");
  refused("{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}", "\"a\" appears twice");
  refused("{\"__metadata__\":{\"a\":1}}", "\"a\" must be a string");
  refused("{\"__metadata__\":1}", "must be an object");
  refused("{\"a\":1}", "must be an object with exactly dtype, shape and data_offsets");
  const std::string empty = "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  refused("{\"a\":" + empty + ",\"a\":" + empty + "}", "\"a\" appears twice");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":1}}",
          "must be an object with exactly");
  refused("{\"a\":{\"dtype\":8,\"shape\":[0],\"data_offsets\":[0,0]}}", "dtype is 8");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":0,\"data_offsets\":[0,0]}}", "shape must be an array");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0]}}", "must be two numbers");
  for (const char* number : {"-1", "1.0", "1e3", "\"1\"", "18446744073709551616", "null", "[1]"})
    refused(str("{\"a\":{\"dtype\":\"U8\",\"shape\":[", number, "],\"data_offsets\":[0,0]}}"),
            "invalid JSON");
}

TEST_CASE("a header of 100000 tensors is read in less than quadratic time") {
  constexpr int kTensors = 100'000;  // a quadratic reader takes minutes
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i)
    header +=
        str(i ? "," : "", "\"t", i, R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ',', i + 1, "]}");
  write_file(with_length(header + '}') + std::string(kTensors, '\0'));
  const SafetensorsFile file(kPath);
  CHECK(file.entries().size() == kTensors);
  CHECK(file.find("t77777")->bytes.begin == static_cast<int64_t>(header.size() + 9 + 77777));
  std::string index = R"({"weight_map":{"t":"f")";
  for (int i = 0; i < kTensors; ++i) index += str(",\"t", i, "\":\"f\"");
  CHECK(parse_safetensors_index(index + "}}").weight_map.size() == kTensors + 1);
}

TEST_CASE("a shape of more dimensions than any framework has is refused") {
  const auto header = [](size_t dimensions) {
    std::string shape = "1";
    while (--dimensions > 0) shape += ",1";
    return str(R"({"t":{"dtype":"U8","shape":[)", shape, R"(],"data_offsets":[0,1]}})");
  };
  CHECK(error_of_header(header(64), 1) == "");
  CHECK(error_of_header(header(30'000), 1) == "\"t\": the shape has 30000 dimensions, must have at most 64");
}

TEST_CASE("a name with a zero byte, which would cut every message, is refused") {
  CHECK(error_of_header(R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1) ==
        "invalid JSON: the name \"a\" contains a zero byte");
}

TEST_CASE("a file whose tensors contradict its header is refused") {
  const auto header = [](const char* dtype, const char* shape, const char* offsets) {
    return str("{\"test\":{\"dtype\":\"", dtype, "\",\"shape\":[", shape, "],\"data_offsets\":[", offsets,
               "]}}");
  };
  CHECK(error_of_header(header("I32", "2,2", "0,4"), 4) ==
        "wrong size: \"test\" has 4 bytes, I32 [2, 2] needs 16");
  CHECK(error_of_header(header("I32", "2,18446744073709551614", "0,16"), 16)
            .find("the element count of shape") != std::string::npos);
  CHECK(error_of_header(header("I32", "2,9223372036854775807", "0,16"), 16).find("the byte count of shape") !=
        std::string::npos);
  CHECK(error_of_header(header("I32", "0,18446744073709551614", "0,0")).find("overflows") !=
        std::string::npos);
  CHECK(error_of_header(header("I33", "4", "0,16"), 16) ==
        "\"test\": dtype \"I33\" is not a dtype of the format");
  CHECK(error_of_header(header("F4", "3", "0,1"), 1).find("not a whole number of bytes") !=
        std::string::npos);
  CHECK(error_of_header(header("U8", "4", "4,0"), 4).starts_with("invalid offset: \"test\" lies at [4, 0]"));
  CHECK(error_of_header(header("U8", "4", "1,5"), 5) ==
        "invalid offset: \"test\" lies at [1, 5], must begin at 0 and not end before it begins");
  const auto two = [](const char* second) {
    return str("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},",
               "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[", second, "]}}");
  };
  CHECK(error_of_header(two("4,8"), 8) == "");
  for (const char* second : {"0,4", "3,7", "5,9"})
    CHECK(error_of_header(two(second), 9).starts_with("invalid offset: \"b\""));
}
