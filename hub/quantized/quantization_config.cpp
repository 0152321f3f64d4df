#include "hub/quantized/quantization_config.h"

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/json_reader.h"

namespace flatshard {
namespace {

using nlohmann::json;

void check_method(const JsonReader& in) {
  in.require("quant_method");
  in.must(in.value("quant_method") == "bitsandbytes", "quant_method",
          "\"bitsandbytes\": other methods are not supported");
  for (const char* key : {"load_in_8bit", "_load_in_8bit"})
    in.must(!in.flag(key, false), key, "false: 8-bit weights are not supported");
  const bool says_so = in.flag("load_in_4bit", false) || in.flag("_load_in_4bit", false);
  in.must(says_so, "load_in_4bit", "true: only 4-bit weights are supported");
}

}  // namespace

QuantizationConfig parse_quantization_config(std::string_view text, const std::string& path) {
  const JsonReader in(path, checked_json<json>(text, path), "quantization_config");
  check_method(in);
  QuantizationConfig config;
  const std::optional<FourBitKind> kind = named<FourBitKind>(in.text("bnb_4bit_quant_type", "fp4"));
  in.must(kind.has_value(), "bnb_4bit_quant_type", "nf4 or fp4");
  config.format.kind = *kind;
  config.format.nested = in.flag("bnb_4bit_use_double_quant", false);
  const std::optional<DType> compute = dtype_of_torch_name(in.text("bnb_4bit_compute_dtype", "float32"));
  in.must(compute && is_float(*compute), "bnb_4bit_compute_dtype", "float32, bfloat16 or float16");
  config.format.compute = compute;
  const std::optional<DType> storage = dtype_of_torch_name(in.text("bnb_4bit_quant_storage", "uint8"));
  in.must(storage.has_value(), "bnb_4bit_quant_storage", "uint8, bfloat16, float16 or float32");
  config.storage = *storage;
  config.skip_modules = in.texts("llm_int8_skip_modules", "null or a list of strings");
  return config;
}

std::string quantization_config_json(const QuantizationConfig& config) {
  const DType compute = config.format.compute.value_or(DType::f32);
  const json all{
      {"_load_in_4bit", true},
      {"_load_in_8bit", false},
      {"bnb_4bit_compute_dtype", torch_name_of(compute)},
      {"bnb_4bit_quant_storage", torch_name_of(config.storage)},
      {"bnb_4bit_quant_type", name_of(config.format.kind)},
      {"bnb_4bit_use_double_quant", config.format.nested},
      {"llm_int8_enable_fp32_cpu_offload", false},
      {"llm_int8_has_fp16_weight", false},
      {"llm_int8_skip_modules", config.skip_modules.empty() ? json(nullptr) : json(config.skip_modules)},
      {"llm_int8_threshold", 6.0},
      {"load_in_4bit", true},
      {"load_in_8bit", false},
      {"quant_method", "bitsandbytes"}};
  return json_text(all, 2);
}

}  // namespace flatshard
