// Blocks against those of ggml's reference quantizers (tests/golden/gguf_files.py).

#include "hub/gguf/ggml_type.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

std::vector<float> floats_of(const test::GoldenTensor& tensor) {
  return {tensor.values.begin(), tensor.values.end()};
}

std::vector<std::byte> bytes_of(const test::GoldenTensor& tensor) {
  std::vector<std::byte> bytes;
  for (const double value : tensor.values) bytes.push_back(static_cast<std::byte>(static_cast<int>(value)));
  return bytes;
}

}  // namespace

TEST_CASE("quantized blocks have the bytes that ggml gives them, and stand for the same values") {
  const auto golden = test::load_golden("ggml_blocks");
  const std::vector<float> values = floats_of(golden.at("values"));
  for (const GgmlType type :
       {GgmlType::q8_0, GgmlType::q4_0, GgmlType::q4_1, GgmlType::q4_k, GgmlType::q6_k, GgmlType::mxfp4}) {
    CAPTURE(name_of(type));
    const std::vector<std::byte> expected = bytes_of(golden.at(name_of(type)));
    CHECK(ggml_bytes(type, std::ssize(values)) == std::ssize(expected));
    std::vector<float> decoded(values.size());
    decode_ggml(type, expected, decoded.data());
    CHECK(decoded == floats_of(golden.at(std::string(name_of(type)) + ".values")));
    if (type == GgmlType::q4_0 || type == GgmlType::q4_1 || type == GgmlType::mxfp4) {
      CHECK_THROWS_AS(encode_ggml(type, values, nullptr), Error);
      continue;
    }
    std::vector<std::byte> encoded(expected.size());
    CHECK(encode_ggml(type, values, encoded.data()));
    CHECK(encoded == expected);
  }
}

TEST_CASE("plain types round to nearest, and say when a value does not fit") {
  const std::vector<float> values{1.0f, -2.5f, 1e-3f, 65504.0f, 70000.0f};
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::vector<float> back(values.size());
  CHECK(encode_ggml(GgmlType::f32, values, bytes.data()));
  decode_ggml(GgmlType::f32, bytes, back.data());
  CHECK(back == values);
  CHECK(encode_ggml(GgmlType::bf16, values, bytes.data()));
  CHECK_FALSE(encode_ggml(GgmlType::f16, values, bytes.data()));
  CHECK(encode_ggml(GgmlType::f16, std::span(values).first(4), bytes.data()));
  decode_ggml(GgmlType::f16, std::span(bytes).first(8), back.data());
  CHECK(back[3] == 65504.0f);
  CHECK(std::fabs(back[2] - 1e-3f) < 1e-6f);
}

TEST_CASE("types are known by ggml's numbers, and others by their names") {
  for (const char* name : value_names(GgmlType{})) {
    const GgmlType type = *named<GgmlType>(name);
    CHECK(ggml_type_of(ggml_id_of(type)) == type);
  }
  CHECK(ggml_type_name(ggml_id_of(GgmlType::q4_k)) == "Q4_K");
  CHECK_FALSE(ggml_type_of(16));
  CHECK(ggml_type_name(16) == "IQ2_XXS");
  CHECK(ggml_type_name(99) == "type 99");
}
