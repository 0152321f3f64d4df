#include "train/models/hf_config.h"

#include <algorithm>
#include <tuple>

#include <nlohmann/json.hpp>

#include "checkpoint/json.h"
#include "runtime/check.h"
#include "runtime/mapped_file.h"
#include "runtime/whole_file.h"
#include "train/config/config.h"

namespace flatshard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kQuantization[] = "quantization_config";

enum class WindowKeys { none, plain, switched };  // switched: use_sliding_window and max_window_layers too

// The differences between the families' formats.
struct Format {
  const char* family;  // also model_type
  const char* architecture;
  WindowKeys window;
  bool says_attention_bias;
  int64_t kv_heads, head_dim;  // transformers' defaults; 0: from the other sizes
};
constexpr Format kFormats[] = {
    {"llama", "LlamaForCausalLM", WindowKeys::none, true, 0, 0},
    {"mistral", "MistralForCausalLM", WindowKeys::plain, false, 8, 0},
    {"qwen2", "Qwen2ForCausalLM", WindowKeys::switched, false, 32, 0},
    {"qwen3", "Qwen3ForCausalLM", WindowKeys::switched, true, 32, 128},
    {"gpt2", "GPT2LMHeadModel", WindowKeys::none, false, 0, 0},
};

const Format* find_format(const std::string& name) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [&](const Format& f) { return f.family == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

// Refuses settings that the family's config.json cannot express.
void check_can_be_written(const ModelConfig& c) {
  const Family& f = family(c.family);
  const auto fixed = [&](const char* key, auto value, auto only) {
    check(value == only, "model.", key, " = ", value,
          " cannot be written to a Hugging Face config of family ", c.family, ", where ", key, " is always ",
          only);
  };
  fixed("qkv_bias", *c.qkv_bias, f.qkv_bias);
  fixed("qk_norm", *c.qk_norm, f.qk_norm);
  if (find_format(c.family)->window == WindowKeys::none) fixed("window", *c.window, int64_t{0});
  if (c.positions == PositionKind::learned) {
    fixed("kv_heads", c.kv_heads, c.heads);
    fixed("head_dim * heads", c.head_dim * c.heads, c.hidden);
  }
  check(c.max_positions > 0, "model.max_positions is ", c.max_positions, ", must be positive");
}

void write_gpt2(ordered_json& out, const ModelConfig& c) {
  out["vocab_size"] = c.vocab;
  out["n_positions"] = c.max_positions;
  out["n_embd"] = c.hidden;
  out["n_layer"] = c.layers;
  out["n_head"] = c.heads;
  out["n_inner"] = c.ffn;
  out["activation_function"] = "gelu_new";
  out["layer_norm_epsilon"] = *c.norm_eps;
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) out[dropout] = 0.0;
}

ordered_json rope_scaling_json(const RopeScalingConfig& s) {
  if (s.kind == "none") return nullptr;
  ordered_json out{{"rope_type", s.kind}, {"factor", s.factor}};
  if (s.kind == "llama3") {
    out["low_freq_factor"] = s.low_freq_factor;
    out["high_freq_factor"] = s.high_freq_factor;
    out["original_max_position_embeddings"] = s.original_max_positions;
  }
  return out;
}

void write_window(ordered_json& out, const ModelConfig& c, WindowKeys keys) {
  if (keys == WindowKeys::none) return;
  out["sliding_window"] = *c.window > 0 ? ordered_json(*c.window) : ordered_json(nullptr);
  if (keys == WindowKeys::plain) return;
  out["use_sliding_window"] = *c.window > 0;
  out["max_window_layers"] = *c.window > 0 ? 0 : c.layers;  // layers from here on have the window
}

void write_rotary(ordered_json& out, const ModelConfig& c, const Format& format) {
  out["vocab_size"] = c.vocab;
  out["hidden_size"] = c.hidden;
  out["intermediate_size"] = c.ffn;
  out["num_hidden_layers"] = c.layers;
  out["num_attention_heads"] = c.heads;
  out["num_key_value_heads"] = c.kv_heads;
  out["head_dim"] = c.head_dim;
  out["hidden_act"] = "silu";
  out["max_position_embeddings"] = c.max_positions;
  out["rms_norm_eps"] = *c.norm_eps;
  out["rope_theta"] = *c.rope_theta;
  out["rope_scaling"] = rope_scaling_json(c.rope_scaling);
  if (format.says_attention_bias) out["attention_bias"] = false;
  write_window(out, c, format.window);
  out["attention_dropout"] = 0.0;
}

// Reads members of a JSON object. Every error names the file and the key.
class Reader {
 public:
  Reader(std::string path, json object, std::string prefix = "")
      : path_(std::move(path)), object_(std::move(object)), prefix_(std::move(prefix)) {}

  // null means absent, as it does to transformers.
  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  bool is_null(const char* key) const { return object_.contains(key) && object_[key].is_null(); }
  const json& value(const char* key) const { return object_[key]; }

  int64_t whole(const char* key, uint64_t least) const {
    check(has(key), path_, ": ", prefix_, key, " is missing");
    const json& v = object_[key];
    must(v.is_number_unsigned() && v.get<uint64_t>() >= least && v.get<uint64_t>() <= INT32_MAX, key,
         str("a whole number from ", least, " to ", INT32_MAX));
    return v.get<int64_t>();
  }
  int64_t size(const char* key) const { return whole(key, 1); }
  int64_t size(const char* key, int64_t absent) const { return has(key) ? size(key) : absent; }

  double positive(const char* key) const {
    check(has(key), path_, ": ", prefix_, key, " is missing");
    const json& v = object_[key];
    must(v.is_number() && v.get<double>() > 0 && v.get<double>() < 1e300, key, "a positive number");
    return v.get<double>();
  }
  double positive(const char* key, double absent) const { return has(key) ? positive(key) : absent; }

  bool flag(const char* key, bool absent) const {
    if (!has(key)) return absent;
    must(object_[key].is_boolean(), key, "true or false");
    return object_[key].get<bool>();
  }
  std::string text(const char* key, const std::string& absent) const {
    if (!has(key)) return absent;
    must(object_[key].is_string(), key, "a string");
    return object_[key].get<std::string>();
  }
  Reader object(const char* key) const {
    must(object_[key].is_object(), key, "an object");
    return {path_, object_[key], prefix_ + key + "."};
  }
  void must(bool holds, const char* key, const std::string& wanted) const {
    if (!holds) fail(str(path_, ": ", prefix_, key, " is ", object_[key].dump(), ", must be ", wanted));
  }

 private:
  std::string path_;
  json object_;
  std::string prefix_;  // of nested objects, for errors
};

RopeScalingConfig read_rope_scaling(const Reader& in) {
  RopeScalingConfig s;
  const char* key = in.has("rope_type") ? "rope_type" : "type";
  s.kind = in.text(key, "default");
  in.must(s.kind == "default" || s.kind == "linear" || s.kind == "llama3", key,
          "default, linear or llama3: other scalings are not supported");
  if (in.has("partial_rotary_factor"))
    in.must(in.positive("partial_rotary_factor") == 1, "partial_rotary_factor", "1");
  if (s.kind == "default") return {};
  s.factor = in.positive("factor");
  if (s.kind == "linear") return s;
  s.low_freq_factor = in.positive("low_freq_factor");
  s.high_freq_factor = in.positive("high_freq_factor");
  in.must(s.high_freq_factor > s.low_freq_factor, "high_freq_factor", "larger than low_freq_factor");
  s.original_max_positions = in.size("original_max_position_embeddings");
  return s;
}

bool same(const RopeScalingConfig& a, const RopeScalingConfig& b) {
  const auto all = [](const RopeScalingConfig& s) {
    return std::tie(s.kind, s.factor, s.low_freq_factor, s.high_freq_factor, s.original_max_positions);
  };
  return all(a) == all(b);
}

// Reads both spellings; if a file has both, they must agree.
void read_rope(const Reader& in, ModelConfig& c) {
  c.rope_theta = in.positive("rope_theta", 10000.0);
  if (in.has("rope_scaling")) c.rope_scaling = read_rope_scaling(in.object("rope_scaling"));
  if (!in.has("rope_parameters")) return;
  const Reader parameters = in.object("rope_parameters");
  for (const json& value : in.value("rope_parameters"))
    in.must(!value.is_object(), "rope_parameters", "one set for all layers");
  const RopeScalingConfig scaling = read_rope_scaling(parameters);
  if (in.has("rope_scaling"))
    in.must(same(scaling, c.rope_scaling), "rope_scaling", "equal to rope_parameters");
  c.rope_scaling = scaling;
  const double theta = parameters.positive("rope_theta", *c.rope_theta);
  if (in.has("rope_theta")) in.must(theta == *c.rope_theta, "rope_theta", "equal to that of rope_parameters");
  c.rope_theta = theta;
}

// The one kind of all layers; "" if the file has no layer_types.
std::string layer_kind(const Reader& in) {
  if (!in.has("layer_types")) return "";
  const json& types = in.value("layer_types");
  const bool one_kind = types.is_array() && !types.empty() && types[0].is_string() &&
                        std::all_of(types.begin(), types.end(), [&](const json& t) { return t == types[0]; });
  in.must(one_kind, "layer_types", "a list of one kind of layer: mixed layers are not supported");
  return types[0];
}

int64_t read_window(const Reader& in, int64_t layers, WindowKeys keys) {
  const std::string kind = layer_kind(in);
  const bool none = keys == WindowKeys::none || in.is_null("sliding_window");
  int64_t window = none ? 0 : in.size("sliding_window", 4096);
  if (keys == WindowKeys::switched) {
    if (!in.flag("use_sliding_window", false) || kind == "full_attention") window = 0;
    if (window > 0 && kind.empty()) {
      const int64_t first = in.has("max_window_layers") ? in.whole("max_window_layers", 0) : 28;
      in.must(first == 0 || first >= layers, "max_window_layers",
              "0 or at least num_hidden_layers: a window in only some layers is not supported");
      if (first > 0) window = 0;
    }
  }
  const std::string expected = window > 0 ? "sliding_attention" : "full_attention";
  in.must(kind.empty() || kind == expected, "layer_types", expected + " in every layer");
  return window;
}

ModelConfig read_rotary(const Reader& in, const Format& format) {
  ModelConfig c{.family = format.family,
                .layers = in.size("num_hidden_layers"),
                .hidden = in.size("hidden_size"),
                .heads = in.size("num_attention_heads"),
                .ffn = in.size("intermediate_size"),
                .vocab = in.size("vocab_size"),
                .max_positions = in.size("max_position_embeddings"),
                .tied = in.flag("tie_word_embeddings", false),
                .norm_eps = in.positive("rms_norm_eps", 1e-6)};
  // null means as many key-value heads as heads; an absent key means the family's default.
  const bool as_heads = in.is_null("num_key_value_heads") || format.kv_heads == 0;
  c.kv_heads = in.size("num_key_value_heads", as_heads ? c.heads : format.kv_heads);
  c.head_dim = in.size("head_dim", format.head_dim);
  c.window = read_window(in, c.layers, format.window);
  in.must(in.text("hidden_act", "silu") == "silu", "hidden_act", "silu");
  for (const char* bias : {"attention_bias", "mlp_bias"})
    in.must(!in.flag(bias, false), bias, "false: this bias is not supported");
  read_rope(in, c);
  return c;
}

ModelConfig read_gpt2(const Reader& in) {
  ModelConfig c{.family = "gpt2",
                .layers = in.size("n_layer"),
                .hidden = in.size("n_embd"),
                .heads = in.size("n_head"),
                .vocab = in.size("vocab_size"),
                .max_positions = in.size("n_positions"),
                .tied = in.flag("tie_word_embeddings", true),
                .norm_eps = in.positive("layer_norm_epsilon", 1e-5)};
  c.ffn = in.size("n_inner", 4 * c.hidden);
  const std::string activation = in.text("activation_function", "gelu_new");
  in.must(activation == "gelu_new" || activation == "gelu_pytorch_tanh", "activation_function",
          "gelu_new or gelu_pytorch_tanh");
  in.must(in.flag("scale_attn_weights", true), "scale_attn_weights", "true");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    in.must(!in.flag(key, false), key, "false");
  return c;
}

// null, one id, or a list of ids.
json token_ids(const Reader& in, const char* key) {
  if (!in.has(key)) return nullptr;
  const json& ids = in.value(key);
  in.must(ids.is_number_integer() ||
              (ids.is_array() &&
               std::all_of(ids.begin(), ids.end(), [](const json& id) { return id.is_number_integer(); })),
          key, "a token id or a list of token ids");
  return ids;
}

json parse_object(std::string_view text, const std::string& path) {
  constexpr size_t kMostBytes = 1 << 24;
  check(text.size() <= kMostBytes, path, ": has ", text.size(), " bytes, must have at most ", kMostBytes);
  check_json(text, path);
  json parsed = json::parse(text);
  check(parsed.is_object(), path, ": must be a JSON object");
  return parsed;
}

}  // namespace

std::string hf_config_json(const ModelConfig& config, DType weights, const std::string& tokens_of) {
  check_can_be_written(config);
  check(is_float(weights), "weights are ", weights, ", must be f32, bf16 or f16");
  const Format& format = *find_format(config.family);
  ordered_json out{{"architectures", {format.architecture}}, {"model_type", format.family}};
  if (config.positions == PositionKind::learned)
    write_gpt2(out, config);
  else
    write_rotary(out, config, format);
  out["tie_word_embeddings"] = *config.tied;
  // Written even if null: transformers would otherwise assume the ids of the published vocabularies.
  const json tokens = tokens_of.empty()
                          ? json::object()
                          : parse_object(read_whole_file(tokens_of, kMostHfConfigBytes), tokens_of);
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"})
    out[token] = token_ids(Reader(tokens_of, tokens), token);
  out["initializer_range"] = 0.02;
  out["use_cache"] = true;
  out["torch_dtype"] = torch_name_of(weights);
  return out.dump(2) + '\n';
}

std::string changed_hf_config(std::string_view text, const std::string& path,
                              const HfConfigChanges& changes) {
  if (!changes.weights && !changes.vocab && !changes.quantization) return std::string(text);
  check_json(text, path);
  ordered_json all = ordered_json::parse(text);
  check(all.is_object(), path, ": must be a JSON object");
  if (changes.weights) all[all.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name_of(*changes.weights);
  if (changes.vocab) all["vocab_size"] = *changes.vocab;
  if (changes.quantization == "")
    all.erase(kQuantization);
  else if (changes.quantization)
    all[kQuantization] = ordered_json::parse(*changes.quantization);
  return all.dump(2) + '\n';
}

ModelConfig read_hf_config(const std::string& path) {
  return parse_hf_config(read_whole_file(path, kMostHfConfigBytes), path);
}

std::optional<QuantizationConfig> read_quantization_config(const std::string& path) {
  const json parsed = parse_object(read_whole_file(path, kMostHfConfigBytes), path);
  const Reader in(path, parsed);
  if (!in.has(kQuantization)) return {};
  return parse_quantization_config(in.value(kQuantization).dump(), path);
}

ModelConfig parse_hf_config(std::string_view text, const std::string& path) {
  const json parsed = parse_object(text, path);
  const Reader in(path, parsed);
  std::string known;
  for (const Format& f : kFormats) known += (known.empty() ? "" : ", ") + std::string(f.family);
  const std::string type = in.text("model_type", "");
  check(!type.empty(), path, ": model_type is missing, must be one of ", known);
  const Format* format = find_format(type);
  in.must(format != nullptr, "model_type", "one of " + known);
  if (in.has("architectures"))
    in.must(in.value("architectures") == json{format->architecture}, "architectures",
            str("[\"", format->architecture, "\"]"));
  if (in.has("dtype") && in.has("torch_dtype"))  // the new and the old spelling
    in.must(in.value("dtype") == in.value("torch_dtype"), "dtype", "equal to torch_dtype");
  if (in.has(kQuantization)) parse_quantization_config(in.value(kQuantization).dump(), path);
  try {
    Config config;
    config.model = resolved(type == "gpt2" ? read_gpt2(in) : read_rotary(in, *format));
    check_values(config, path);  // the same bounds as for config.toml
    return config.model;
  } catch (const Error& error) {
    const std::string reason = error.what();
    throw Error(reason.starts_with(path) ? reason : path + ": " + reason, error.where);
  }
}

}  // namespace flatshard
