#pragma once
// The config.json of each family (model/config.h), as written and read by Hugging Face transformers. Each
// family has one row, with the keys that its file adds to the common ones or replaces.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "runtime/json_reader.h"

namespace flatshard {

// Defaults of keys are those of transformers. A key without a default here has the default of its family.
struct Format {
  const char* family;
  const char* architecture;
  const char* model_type = family;
  int64_t kv_heads = 0, head_dim = 0;  // defaults; 0: computed from the other sizes
  bool attention_bias = false;         // the file has the key attention_bias
  bool qkv_bias = false;               // attention_bias applies only to q, k and v, and may be true
  bool only_longrope = false;          // longrope is the only scaling, under other names
  int64_t original_positions = 0;      // default of its key original_max_position_embeddings; 0: none
  bool partial_rotary = false;         // the file has the key partial_rotary_factor
  bool multipliers = false;            // the file has the keys of Granite's multipliers
  const char* activation = "hidden_act";
  std::optional<int64_t> window{};  // default of sliding_window; empty: no such key
  bool window_switch = false;       // the file has the key use_sliding_window
  bool window_pattern = false;      // the file has the key sliding_window_pattern
  bool window_rope = false;         // the key rope_local_base_freq: layers with a window have their own base
  bool max_window_layers = false;   // the file has this key
  bool layer_types = false;         // the file has this key
  bool no_rope_layers = false;      // the file has this key
  int64_t query_scalar = 0;         // default of query_pre_attn_scalar; 0: no such key
  bool softcaps = false;            // the file has the keys of soft caps
  const char* experts = nullptr;    // the key for the number of experts, if the family has them
  bool expert_ffn = false;          // experts have their own width, and some blocks none
  bool norm_topk = false;           // the file has the key norm_topk_prob
  bool shared_expert = false;       // the file has the key shared_expert_intermediate_size
  bool qk_norm = false;             // the file has the key use_qk_norm
  // The file has the keys n_group, topk_group and routed_scaling_factor; n_shared_experts, each as wide as an
  // expert; and first_k_dense_replace, the number of the first blocks, which have no experts.
  bool groups = false;
  bool swiglu_limit = false;       // the file has this key, swiglu_alpha and experts_per_token
  bool scaled_by_default = false;  // positions are scaled if the file does not say how
  // The model_type of text_config, the object with the keys of the text. Null unless the model reads images.
  const char* text_type = nullptr;
};

const std::vector<Format>& formats();
const Format& format_of(const std::string& family);
const Format* find_format(const std::string& model_type);  // null if there is none

// Reads the keys of the text. The result is not yet resolved.
ModelConfig read_text(const JsonReader& in, const Format& format);
void write_text(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

// The keys of rotary positions: rope_theta and rope_scaling, as written by transformers 4, and
// rope_parameters of version 5. If a file has both, they must agree. If layers with a sliding window have a
// base of their own, it is rope_local_base_freq, and rope_parameters has a set for each type of layer.
void read_rope(const JsonReader& in, const Format& format, ModelConfig& c);
void write_rope(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

// The keys that distinguish layers: layers with a sliding window, with full attention and without rotary
// positions. `c` must have the number of layers.
void read_layers(const JsonReader& in, const Format& format, ModelConfig& c);
void write_layers(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

// The file of a model that reads images. It has the objects text_config, vision_config and, in Idefics2,
// perceiver_config beside the keys of the whole model. Files omit keys with the defaults of transformers. In
// Qwen's models, the keys of the text may also be beside these objects, as in published files.
inline constexpr char kTextConfig[] = "text_config";
ModelConfig read_vision_model(const JsonReader& in, const Format& format);
void write_vision_model(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

// Reads the config of a family's file. The result is not yet resolved.
ModelConfig read_family(const JsonReader& in, const Format& format);
// Writes the keys of the architecture. An Error names a setting that the format cannot express.
void write_family(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

}  // namespace flatshard
