#include "hub/quantized/quantization_config.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "checkpoint/json_text.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

using nlohmann::json;

// Reads members of the object. A null member is absent, as in transformers.
class Reader {
 public:
  Reader(const std::string& path, const json& object) : path_(path), object_(object) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  const json& value(const char* key) const { return object_[key]; }
  void must(bool holds, const char* key, const std::string& wanted) const {
    if (holds) return;
    fail(str(path_, ": quantization_config.", key, ' ',
             has(key) ? "is " + json_text(value(key)) : std::string("is missing"), ", must be ", wanted));
  }
  bool flag(const char* key) const {
    if (!has(key)) return false;
    must(value(key).is_boolean(), key, "true or false");
    return value(key).get<bool>();
  }
  std::string text(const char* key, const char* absent) const {
    if (!has(key)) return absent;
    must(value(key).is_string(), key, "a string");
    return value(key).get<std::string>();
  }

 private:
  const std::string& path_;
  const json& object_;
};

void check_method(const Reader& in) {
  in.must(in.has("quant_method") && in.value("quant_method") == "bitsandbytes", "quant_method",
          "\"bitsandbytes\": other methods are not supported");
  for (const char* key : {"load_in_8bit", "_load_in_8bit"})
    in.must(!in.flag(key), key, "false: 8-bit weights are not supported");
  const bool says_so = in.flag("load_in_4bit") || in.flag("_load_in_4bit");
  in.must(says_so, "load_in_4bit", "true: only 4-bit weights are supported");
}

}  // namespace

QuantizationConfig parse_quantization_config(std::string_view text, const std::string& path) {
  const json object = checked_json<json>(text, path);
  check(object.is_object(), path, ": quantization_config must be an object");
  const Reader in(path, object);
  check_method(in);
  QuantizationConfig config;
  const std::optional<FourBitKind> kind = named<FourBitKind>(in.text("bnb_4bit_quant_type", "fp4"));
  in.must(kind.has_value(), "bnb_4bit_quant_type", "nf4 or fp4");
  config.format.kind = *kind;
  config.format.nested = in.flag("bnb_4bit_use_double_quant");
  const std::optional<DType> compute = dtype_of_torch_name(in.text("bnb_4bit_compute_dtype", "float32"));
  in.must(compute && is_float(*compute), "bnb_4bit_compute_dtype", "float32, bfloat16 or float16");
  config.format.compute = compute;
  const std::optional<DType> storage = dtype_of_torch_name(in.text("bnb_4bit_quant_storage", "uint8"));
  in.must(storage.has_value(), "bnb_4bit_quant_storage", "uint8, bfloat16, float16 or float32");
  config.storage = *storage;
  constexpr const char* kSkip = "llm_int8_skip_modules";
  if (!in.has(kSkip)) return config;
  const json& skip = in.value(kSkip);
  in.must(skip.is_array() &&
              std::all_of(skip.begin(), skip.end(), [](const json& name) { return name.is_string(); }),
          kSkip, "null or a list of strings");
  config.skip_modules = skip.get<std::vector<std::string>>();
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
