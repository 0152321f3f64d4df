#include "hub/quantized/quantization_config.h"

#include "runtime/json.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr char kLeast[] = R"({"quant_method": "bitsandbytes", "load_in_4bit": true})";

// The least member with these keys on top.
std::string with_keys(const std::string& keys) {
  nlohmann::json all = nlohmann::json::parse(kLeast);
  all.update(nlohmann::json::parse('{' + keys + '}'));
  return all.dump();
}

std::string error_with(const std::string& keys) {
  return test::error_of([&] { parse_quantization_config(with_keys(keys), "c.json"); });
}

}  // namespace

TEST_CASE("absent keys of quantization_config have the defaults of transformers: fp4, float32, uint8") {
  for (const char* text : {kLeast, R"({"quant_method": "bitsandbytes", "_load_in_4bit": true,
                                       "bnb_4bit_quant_type": null, "llm_int8_skip_modules": null})"}) {
    const QuantizationConfig config = parse_quantization_config(text, "c.json");
    CHECK(config.format == FourBitFormat{.kind = FourBitKind::fp4, .compute = DType::f32});
    CHECK(config.storage == DType::u8);
    CHECK(config.skip_modules.empty());
  }
}

TEST_CASE("a quantization_config is read as it was written, with all keys of transformers") {
  const QuantizationConfig config{
      .format = {.kind = FourBitKind::nf4, .nested = true, .compute = DType::bf16},
      .storage = DType::f16,
      .skip_modules = {"lm_head", "q_proj"}};
  const std::string text = quantization_config_json(config);
  CHECK(nlohmann::json::parse(text).size() == 13);
  const QuantizationConfig read = parse_quantization_config(text, "c.json");
  CHECK(read.format == config.format);
  CHECK(read.storage == DType::f16);
  CHECK(read.skip_modules == config.skip_modules);
  CHECK(nlohmann::json::parse(quantization_config_json({}))["llm_int8_skip_modules"].is_null());
}

TEST_CASE("another method, 8-bit weights and unknown values are errors that name file and key") {
  CHECK(
      error_with(R"("quant_method": "gptq")") ==
      "c.json: quantization_config.quant_method is \"gptq\", must be \"bitsandbytes\": other methods are not "
      "supported");
  CHECK(error_with(R"("quant_method": null)")
            .starts_with("c.json: quantization_config.quant_method is missing"));
  for (const char* key : {"load_in_8bit", "_load_in_8bit"})
    CHECK(
        error_with(str('"', key, "\": true")) ==
        str("c.json: quantization_config.", key, " is true, must be false: 8-bit weights are not supported"));
  CHECK(error_with(R"("load_in_4bit": false)") ==
        "c.json: quantization_config.load_in_4bit is false, must be true: only 4-bit weights are supported");
  CHECK(error_with(R"("bnb_4bit_quant_type": "af4")") ==
        "c.json: quantization_config.bnb_4bit_quant_type is \"af4\", must be nf4 or fp4");
  CHECK(error_with(R"("bnb_4bit_use_double_quant": 1)") ==
        "c.json: quantization_config.bnb_4bit_use_double_quant is 1, must be true or false");
  CHECK(error_with(R"("bnb_4bit_compute_dtype": "float8")") ==
        "c.json: quantization_config.bnb_4bit_compute_dtype is \"float8\", must be float32, bfloat16 or "
        "float16");
  CHECK(error_with(R"("bnb_4bit_quant_storage": "float64")") ==
        "c.json: quantization_config.bnb_4bit_quant_storage is \"float64\", must be uint8, bfloat16, float16 "
        "or float32");
  CHECK(
      error_with(R"("llm_int8_skip_modules": "lm_head")") ==
      "c.json: quantization_config.llm_int8_skip_modules is \"lm_head\", must be null or a list of strings");
}
