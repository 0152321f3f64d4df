#include "checkpoint/tensor_difference.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <list>

#include "checkpoint/float_values.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A file with these bytes, open until the program ends.
const InputFile& file_of(std::span<const std::byte> bytes) {
  static std::list<InputFile> files;
  const std::string path = str("values-", files.size());
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  return files.emplace_back(path);
}

template <class T>
SafetensorsEntry entry_of(const std::vector<T>& values, const char* dtype) {
  const InputFile& file = file_of(std::as_bytes(std::span(values)));
  return {.name = "w",
          .dtype = dtype,
          .shape = {std::ssize(values)},
          .bytes = {.file = &file, .begin = 0, .size = file.size()}};
}

TensorDifference between(const std::vector<float>& a, const std::vector<float>& b) {
  return difference(entry_of(a, "F32"), entry_of(b, "F32"));
}

}  // namespace

TEST_CASE("tensors are compared by bits, then by value") {
  const TensorDifference same = between({1, 2, std::nanf("")}, {1, 2, std::nanf("")});
  CHECK(same.equal_bits);
  CHECK(same.elements == 3);
  CHECK(same.different == 0);
  const TensorDifference zeros = between({0.0f, 1}, {-0.0f, 1});
  CHECK(!zeros.equal_bits);
  CHECK(zeros.different == 0);
  const TensorDifference far = between({1, 2, 3, 4}, {1, 2.5f, 3, -4});
  CHECK(far.comparable);
  CHECK(far.different == 2);
  CHECK(far.largest == 8);
  CHECK(far.largest_relative == 2);
  CHECK(std::isinf(between({1, std::nanf("")}, {1, 2}).largest));
  CHECK(std::isinf(between({kInfinity}, {1}).largest));
  CHECK(between({kInfinity}, {kInfinity}).equal_bits);
}

TEST_CASE(
    "tensors of different widths are compared by value, those of different shapes or without floats are not "
    "comparable") {
  const std::vector<float> wide{1, 2, 1.00390625f};
  const std::vector<bf16> narrow{bf16(1.0f), bf16(2.0f), bf16(1.0f)};
  const TensorDifference d = difference(entry_of(wide, "F32"), entry_of(narrow, "BF16"));
  CHECK(d.comparable);
  CHECK(!d.equal_bits);
  CHECK(d.different == 1);
  CHECK(d.largest == 0.00390625);
  CHECK(!between({1, 2}, {1}).comparable);
  CHECK(!difference(entry_of(wide, "F32"), entry_of(wide, "I32")).comparable);
}

TEST_CASE("every element is seen once, and a difference in the last block is found") {
  std::vector<float> a(static_cast<size_t>(kValueBlock) * 2 + 5), b = a;
  b.back() = 1;
  int64_t seen = 0;
  const TensorDifference d =
      difference(entry_of(a, "F32"), entry_of(b, "F32"), [&](int64_t elements) { seen += elements; });
  CHECK(seen == std::ssize(a));
  CHECK(d.different == 1);
  CHECK(d.largest == 1);
}

TEST_CASE(
    "values are converted to another dtype rounded to nearest even, or refused if they exceed its range") {
  const std::vector<float> values{1.0f, 1.00390625f, 1.01171875f, 65519.0f, kInfinity};  // ties go to even
  const SafetensorsEntry entry = entry_of(values, "F32");
  std::vector<std::byte> bytes;
  read_as(entry, 0, 3, DType::bf16, bytes);
  CHECK(reinterpret_cast<const uint16_t*>(bytes.data())[1] == 0x3f80);
  CHECK(reinterpret_cast<const uint16_t*>(bytes.data())[2] == 0x3f82);
  read_as(entry, 3, 2, DType::f16, bytes);
  CHECK(reinterpret_cast<const uint16_t*>(bytes.data())[0] == 0x7bff);
  CHECK(reinterpret_cast<const uint16_t*>(bytes.data())[1] == 0x7c00);
  const std::vector<float> large{0, 65520};
  CHECK(test::error_of([&] {
          read_as(entry_of(large, "F32"), 0, 2, DType::f16, bytes);
        }).starts_with("\"w\": element 1 is 65520, which overflows to infinity in f16"));
  CHECK(test::error_of([&] { read_as(entry, 3, 3, DType::f16, bytes); }) ==
        "\"w\": 3 elements from 3 exceed its 5");
  CHECK(test::error_of([&] { read_as(entry_of(large, "I32"), 0, 2, DType::f16, bytes); }) ==
        "\"w\" is I32, must be F32, BF16 or F16");
}
