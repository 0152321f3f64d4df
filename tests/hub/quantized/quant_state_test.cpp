#include "hub/quantized/quant_state.h"

#include <cmath>

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr char kPlain[] = R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [48, 32]})";
constexpr char kNested[] =
    R"({"quant_type": "fp4", "blocksize": 128, "dtype": "float16", "shape": [3, 5], )"
    R"("nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.2558186948299408})";

std::string error_of_text(const std::string& text) {
  const std::string error = test::error_of([&] { parse_quant_state(text, "w"); });
  CHECK(error.starts_with("w: "));
  return error.substr(std::min<size_t>(3, error.size()));
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  REQUIRE(at != text.npos);
  return text.replace(at, what.size(), by);
}

std::string offset_text(float offset) {
  QuantState state = parse_quant_state(kNested, "w");
  state.nested_offset = offset;
  const std::string text = quant_state_json(state);
  CHECK(parse_quant_state(text, "w").nested_offset == offset);
  const size_t at = text.rfind(' ');
  return text.substr(at + 1, text.size() - at - 2);
}

}  // namespace

TEST_CASE("a quant_state is read, and written as bitsandbytes writes it") {
  const QuantState plain = parse_quant_state(kPlain, "w");
  CHECK(plain.weight.format == FourBitFormat{});
  CHECK(plain.weight.out == 48);
  CHECK(plain.weight.in == 32);
  CHECK(plain.dtype == DType::bf16);
  CHECK(quant_state_json(plain) == kPlain);
  const QuantState nested = parse_quant_state(kNested, "w");
  CHECK(nested.weight.format == FourBitFormat{.kind = FourBitKind::fp4, .block = 128, .nested = true});
  CHECK(nested.dtype == DType::f16);
  CHECK(nested.nested_offset == 0.2558186948299408f);
  CHECK(quant_state_json(nested) == kNested);
}

TEST_CASE("an offset is printed as Python prints it") {
  CHECK(offset_text(0.25f) == "0.25");
  CHECK(offset_text(0.0f) == "0.0");
  CHECK(offset_text(1.0f) == "1.0");
  CHECK(offset_text(0.1f) == "0.10000000149011612");
  CHECK(offset_text(1e-4f) == "9.999999747378752e-05");
  CHECK(offset_text(1.1e-4f) == "0.00011000000085914508");
  CHECK(offset_text(1e-30f) == "1.0000000031710769e-30");
  CHECK(offset_text(1e15f) == "999999986991104.0");
  CHECK(offset_text(1e16f) == "1.0000000272564224e+16");
}

TEST_CASE("the order of members and the spacing of a quant_state do not matter") {
  const QuantState state =
      parse_quant_state(R"({"shape":[48,32],"dtype":"float32","quant_type":"nf4",  "blocksize":64 })", "w");
  CHECK(state.weight.out == 48);
  CHECK(state.dtype == DType::f32);
}

TEST_CASE("a quant_state that is not of the format is an error that names the member, its value and bound") {
  const std::string plain = kPlain, nested = kNested;
  const auto missing = [&](const char* from, const char* to, std::initializer_list<std::string> parts) {
    return test::missing_from(error_of_text(replaced(plain, from, to)), parts);
  };
  CHECK(missing("\"nf4\"", "\"int4\"", {"quant_type", "\"int4\"", "nf4", "fp4"}) == "");
  CHECK(missing("64", "48", {"blocksize", "48", "power of two", "32", "4096"}) == "");
  CHECK(missing("64", "\"64\"", {"blocksize", "\"64\"", "power of two", "32", "4096"}) == "");
  CHECK(missing("bfloat16", "float64", {"dtype", "\"float64\"", "float32, bfloat16 or float16"}) == "");
  CHECK(missing("[48, 32]", "[48, 0]", {"shape", "[48,0]", "2^31"}) == "");
  for (const char* shape : {"null", "[48]", "[1, 2, 3]", "[48, -1]", "[48, 4294967296]", "[1.5, 2]"})
    CHECK(error_of_text(replaced(plain, "[48, 32]", shape)).starts_with("shape is "));
  CHECK(error_of_text(replaced(plain, "\"dtype\": \"bfloat16\", ", "")) == "dtype is missing");
  CHECK(error_of_text(replaced(plain, "{", "{\"extra\": 1, ")) == "\"extra\" is not a member of this format");
  CHECK(error_of_text(replaced(plain, "{", "{\"dtype\": \"bfloat16\", ")) ==
        "invalid JSON: \"dtype\" appears twice");
  CHECK(
      error_of_text(replaced(nested, "\"nested_blocksize\": 256, ", "")) ==
      "nested_dtype is present, but a weight has all of nested_blocksize, nested_dtype and nested_offset or "
      "none");
  CHECK(error_of_text(replaced(nested, "256", "128")) == "nested_blocksize is 128, must be 256");
  CHECK(error_of_text(replaced(nested, "float32", "float16")) ==
        "nested_dtype is \"float16\", must be float32");
  CHECK(error_of_text(replaced(nested, "0.2558186948299408", "1e39")) ==
        "nested_offset is 1e+39, must be a number within the range of float32");
  CHECK(error_of_text(replaced(nested, "0.2558186948299408", "\"0.25\"")).starts_with("nested_offset is "));
  CHECK(error_of_text("[]") == "must be a JSON object");
  CHECK(error_of_text("{\"quant").starts_with("invalid JSON: "));
}
