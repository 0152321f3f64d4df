#include "hub/hf_config.h"

#include <algorithm>

#include "hub/format.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/mapped_file.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kQuantization[] = "quantization_config";

// Reads null, one id, or a list of ids.
json token_ids(const JsonReader& in, const char* key) {
  if (!in.has(key)) return nullptr;
  const json& ids = in.value(key);
  in.must(ids.is_number_integer() ||
              (ids.is_array() &&
               std::all_of(ids.begin(), ids.end(), [](const json& id) { return id.is_number_integer(); })),
          key, "a token id or a list of token ids");
  return ids;
}

JsonReader reader_of(std::string_view text, const std::string& path) {
  constexpr size_t kMostBytes = 1 << 24;
  check(text.size() <= kMostBytes, path, ": has ", text.size(), " bytes, must have at most ", kMostBytes);
  return {path, checked_json<json>(text, path)};
}

// Whether the file has the member for 4-bit weights. Weights in MXFP4 need no other description than their
// tensors (quantized/mxfp4_tensors.h).
bool has_four_bits(const JsonReader& in) {
  if (!in.has(kQuantization)) return false;
  const json& member = in.value(kQuantization);
  return !member.is_object() || member.value("quant_method", json()) != "mxfp4";
}

}  // namespace

std::string hf_config_json(const ModelConfig& config, DType weights, const std::string& tokens_of) {
  check(is_float(weights), "weights are ", weights, ", must be f32, bf16 or f16");
  const Format& format = format_of(config.family);
  ordered_json out{{"architectures", {format.architecture}}, {"model_type", format.model_type}};
  write_family(out, format, config);
  out["tie_word_embeddings"] = *config.tied;
  // Null ids are written, too: transformers would otherwise assume the ids of the published vocabularies.
  const JsonReader tokens = tokens_of.empty()
                                ? JsonReader("", json::object())
                                : reader_of(read_whole_file(tokens_of, kMostHfConfigBytes), tokens_of);
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"})
    out[token] = token_ids(tokens, token);
  out["initializer_range"] = 0.02;
  out["use_cache"] = true;
  out["torch_dtype"] = torch_name_of(weights);
  return json_text(out, 2) + '\n';
}

std::string changed_hf_config(std::string_view text, const std::string& path,
                              const HfConfigChanges& changes) {
  if (!changes.weights && !changes.vocab && !changes.quantization) return std::string(text);
  ordered_json all = checked_json<ordered_json>(text, path);
  check(all.is_object(), path, ": must be a JSON object");
  if (changes.weights) all[all.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name_of(*changes.weights);
  if (changes.vocab) (all.contains(kTextConfig) ? all[kTextConfig] : all)["vocab_size"] = *changes.vocab;
  if (changes.quantization == "")
    all.erase(kQuantization);
  else if (changes.quantization)
    all[kQuantization] = parse_json<ordered_json>(*changes.quantization);
  return json_text(all, 2) + '\n';
}

ModelConfig read_hf_config(const std::string& path) {
  return parse_hf_config(read_whole_file(path, kMostHfConfigBytes), path);
}

std::optional<QuantizationConfig> read_quantization_config(const std::string& path) {
  const JsonReader in = reader_of(read_whole_file(path, kMostHfConfigBytes), path);
  if (!has_four_bits(in)) return {};
  return parse_quantization_config(json_text(in.value(kQuantization)), path);
}

ModelConfig parse_hf_config(std::string_view text, const std::string& path) {
  const JsonReader in = reader_of(text, path);
  std::string known;
  for (const Format& f : formats()) known += (known.empty() ? "" : ", ") + std::string(f.model_type);
  const std::string type = in.text("model_type", "");
  check(!type.empty(), path, ": model_type is missing, must be one of ", known);
  const Format* format = find_format(type);
  in.must(format != nullptr, "model_type", "one of " + known);
  if (in.has("architectures"))
    in.must(in.value("architectures") == json{format->architecture}, "architectures",
            str("[\"", format->architecture, "\"]"));
  if (in.has("dtype") && in.has("torch_dtype"))  // the new and the old spelling
    in.must(in.value("dtype") == in.value("torch_dtype"), "dtype", "equal to torch_dtype");
  if (has_four_bits(in)) parse_quantization_config(json_text(in.value(kQuantization)), path);
  try {
    return resolved(read_family(in, *format));
  } catch (const Error& error) {
    const std::string reason = error.what();
    throw Error(reason.starts_with(path) ? reason : path + ": " + reason, error.where);
  }
}

}  // namespace flatshard
