#include <algorithm>

#include "hub/format.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace flatshard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kActivation[] = "gelu_pytorch_tanh";

bool resamples(const Format& format) { return family(format.family).connector == ConnectorKind::perceiver; }

// Defaults of MistralConfig and LlamaConfig for keys that a text_config omits.
json text_defaults(const Format& format) {
  if (resamples(format))
    return {{"vocab_size", 32000},     {"hidden_size", 4096},       {"intermediate_size", 14336},
            {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"max_position_embeddings", 32768}};
  return {{"vocab_size", 32000},     {"hidden_size", 4096},       {"intermediate_size", 11008},
          {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"max_position_embeddings", 2048}};
}

json tower_defaults(const Format& format) {
  const bool idefics2 = resamples(format);
  return {{"hidden_size", idefics2 ? 768 : 1152},      {"intermediate_size", 3072}, {"num_hidden_layers", 12},
          {"num_attention_heads", idefics2 ? 12 : 16}, {"image_size", 224},         {"patch_size", 32}};
}

PerceiverConfig read_perceiver(const JsonReader& in, const ModelConfig& text) {
  PerceiverConfig p;
  p.latents = in.size("resampler_n_latents", p.latents);
  p.layers = in.size("resampler_depth", p.layers);
  p.heads = in.size("resampler_n_heads", p.heads);
  p.head_dim = in.size("resampler_head_dim", p.head_dim);
  p.kv_heads = in.size("num_key_value_heads", p.kv_heads);
  // If the width of the text is missing, transformers also uses the epsilon of the text.
  const bool has_width = in.size("hidden_size", 4096) == text.hidden;
  p.norm_eps = has_width ? in.positive("rms_norm_eps", p.norm_eps) : *text.norm_eps;
  in.must(in.text("hidden_act", "silu") == "silu", "hidden_act", "silu");
  return p;
}

// --- Qwen's models: rotary towers

bool has_gates(const Format& format) { return family(format.family).tower.mlp == MlpKind::swiglu; }
const char* activation_of_tower(const Format& format) { return has_gates(format) ? "silu" : "quick_gelu"; }

std::vector<int64_t> blocks_of(const JsonReader& in, const char* key, std::vector<int64_t> absent) {
  if (!in.has(key)) return absent;
  const json& blocks = in.value(key);
  const bool whole = blocks.is_array() && std::all_of(blocks.begin(), blocks.end(), [](const json& block) {
                       return block.is_number_integer() && block >= 0 && block <= INT32_MAX;
                     });
  in.must(whole, key, "a list of blocks");
  return blocks.get<std::vector<int64_t>>();
}

VisionConfig read_rotary_tower(const JsonReader& in, const Format& format, int64_t text_width) {
  VisionConfig v{.layers = in.size("depth", 32),
                 .heads = in.size("num_heads", 16),
                 .patch_size = in.size("patch_size", 14),
                 .scale = in.size("spatial_merge_size", 2),
                 .repeats = in.size("temporal_patch_size", 2)};
  const char* const width_of_rows = has_gates(format) ? "out_hidden_size" : "hidden_size";
  in.must(in.size(width_of_rows, 3584) == text_width, width_of_rows,
          str(text_width, ", the width of the text"));
  const std::string activation = activation_of_tower(format);
  in.must(in.text("hidden_act", activation) == activation, "hidden_act", activation);
  for (const char* key : {"in_channels", "in_chans"}) in.must(in.size(key, 3) == 3, key, "3");
  if (!has_gates(format)) {
    v.hidden = in.size("embed_dim", 1280);
    v.ffn = v.hidden * in.size("mlp_ratio", 4);
    return v;
  }
  v.hidden = in.size("hidden_size", 3584);
  v.ffn = in.size("intermediate_size", 3420);
  v.window = in.size("window_size", 112) / v.scale / v.patch_size;
  in.must(v.window > 0, "window_size", str("at least ", v.scale * v.patch_size, ", a square of patches"));
  v.full_attention_blocks = blocks_of(in, "fullatt_block_indexes", {7, 15, 23, 31});
  return v;
}

ordered_json rotary_tower(const Format& format, const ModelConfig& c) {
  const VisionConfig& v = *c.vision;
  ordered_json out{{"depth", v.layers},
                   {"num_heads", v.heads},
                   {"patch_size", v.patch_size},
                   {"spatial_merge_size", v.scale},
                   {"temporal_patch_size", v.repeats},
                   {"in_channels", 3},
                   {"hidden_act", activation_of_tower(format)}};
  if (!has_gates(format)) {
    out["embed_dim"] = v.hidden;
    out["hidden_size"] = c.hidden;
    check(v.ffn % v.hidden == 0, "model.vision.ffn = ", v.ffn,
          " must be a multiple of model.vision.hidden = ", v.hidden, " to be written to a config of family ",
          c.family);
    out["mlp_ratio"] = v.ffn / v.hidden;
    return out;
  }
  out["hidden_size"] = v.hidden;
  out["out_hidden_size"] = c.hidden;
  out["intermediate_size"] = v.ffn;
  out["window_size"] = v.window * v.scale * v.patch_size;
  out["fullatt_block_indexes"] = v.full_attention_blocks;
  return out;
}

ModelConfig read_rotary_model(const JsonReader& in, const Format& format) {
  const bool nested = in.has(kTextConfig);
  const JsonReader text = nested ? in.object(kTextConfig) : in;
  if (nested)
    text.must(text.text("model_type", format.text_type) == format.text_type, "model_type", format.text_type);
  ModelConfig c = read_text(text, format);
  c.tied = in.flag("tie_word_embeddings", false);
  c.vision = read_rotary_tower(in.object("vision_config", json::object()), format, c.hidden);
  c.vision->image_token = in.has("image_token_id") ? in.whole("image_token_id", 0, INT32_MAX) : 151655;
  return c;
}

}  // namespace

ModelConfig read_vision_model(const JsonReader& in, const Format& format) {
  if (family(format.family).tower.rotary) return read_rotary_model(in, format);
  const JsonReader text = in.object(kTextConfig, text_defaults(format));
  text.must(text.text("model_type", format.text_type) == format.text_type, "model_type", format.text_type);
  ModelConfig c = read_text(text, format);
  c.tied = in.flag("tie_word_embeddings", false);

  const JsonReader tower = in.object("vision_config", tower_defaults(format));
  VisionConfig v{.layers = tower.size("num_hidden_layers"),
                 .hidden = tower.size("hidden_size"),
                 .heads = tower.size("num_attention_heads"),
                 .ffn = tower.size("intermediate_size"),
                 .patch_size = tower.size("patch_size"),
                 .image_size = tower.size("image_size"),
                 .norm_eps = tower.positive("layer_norm_eps", 1e-6)};
  tower.must(tower.text("hidden_act", kActivation) == kActivation, "hidden_act", kActivation);
  tower.must(tower.size("num_channels", 3) == 3, "num_channels", "3");
  v.image_token = in.has("image_token_id") ? in.whole("image_token_id", 0, INT32_MAX)
                  : resamples(format)      ? 32001
                                           : 128257;
  if (resamples(format))
    v.perceiver = read_perceiver(in.object("perceiver_config", json::object()), c);
  else
    v.scale = in.size("scale_factor", v.scale);
  c.vision = v;
  return c;
}

void write_vision_model(ordered_json& out, const Format& format, const ModelConfig& c) {
  const VisionConfig& v = *c.vision;
  if (v.tower.rotary) {
    write_text(out, format, c);
    out["vision_config"] = rotary_tower(format, c);
    out["image_token_id"] = v.image_token;
    return;
  }
  ordered_json text{{"model_type", format.text_type}};
  write_text(text, format, c);
  text["pad_token_id"] = nullptr;  // prevents transformers from zeroing a row of the embedding
  out["text_config"] = std::move(text);
  out["vision_config"] = {{"hidden_size", v.hidden},
                          {"intermediate_size", v.ffn},
                          {"num_hidden_layers", v.layers},
                          {"num_attention_heads", v.heads},
                          {"patch_size", v.patch_size},
                          {"image_size", v.image_size},
                          {"num_channels", 3},
                          {"hidden_act", kActivation},
                          {"layer_norm_eps", v.norm_eps},
                          {"attention_dropout", 0.0}};
  if (resamples(format))
    out["perceiver_config"] = {{"hidden_size", c.hidden},
                               {"resampler_n_latents", v.perceiver.latents},
                               {"resampler_depth", v.perceiver.layers},
                               {"resampler_n_heads", v.perceiver.heads},
                               {"resampler_head_dim", v.perceiver.head_dim},
                               {"num_key_value_heads", v.perceiver.kv_heads},
                               {"hidden_act", "silu"},
                               {"rms_norm_eps", v.perceiver.norm_eps},
                               {"attention_dropout", 0.0}};
  else
    out["scale_factor"] = v.scale;
  out["image_token_id"] = v.image_token;
}

}  // namespace flatshard
