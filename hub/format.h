#pragma once
// The config.json of each family (model/config.h), as Hugging Face transformers writes and reads it: one row
// per family, with the keys that its file adds to the common ones or has in their place.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hub/json_reader.h"
#include "model/config.h"

namespace flatshard {

// Defaults of keys are transformers'. A key without one here has the default of its family.
struct Format {
  const char* family;
  const char* architecture;
  const char* model_type = family;
  int64_t kv_heads = 0, head_dim = 0;  // defaults; 0: from the other sizes
  bool attention_bias = false;         // has the key attention_bias
  bool qkv_bias = false;               // attention_bias is that of q, k and v alone, and may be true
  bool only_longrope = false;          // has no other scaling, and other names for it
  int64_t original_positions = 0;  // default of original_max_position_embeddings, a key of its own; 0: none
  bool partial_rotary = false;     // has the key partial_rotary_factor
  bool multipliers = false;        // has the keys of Granite's multipliers
  const char* activation = "hidden_act";
  std::optional<int64_t> window{};  // default of sliding_window; empty: no such key
  bool window_switch = false;       // has the key use_sliding_window
  bool window_pattern = false;      // has the key sliding_window_pattern
  bool window_rope =
      false;  // has the key rope_local_base_freq: layers with a window have a base of their own
  bool max_window_layers = false;  // has this key
  bool layer_types = false;        // has this key
  bool no_rope_layers = false;     // has this key
  int64_t query_scalar = 0;        // default of query_pre_attn_scalar; 0: no such key
  bool softcaps = false;           // has the keys of soft caps
  // Of a model that reads images: the model_type of its text_config, which has the keys of its text.
  const char* text_type = nullptr;
};

const std::vector<Format>& formats();
const Format& format_of(const std::string& family);
const Format* find_format(const std::string& model_type);  // null if there is none

// The keys of the text; not yet resolved.
ModelConfig read_text(const JsonReader& in, const Format& format);
void write_text(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

// The config of a family's file: not yet resolved.
ModelConfig read_family(const JsonReader& in, const Format& format);
// Writes the keys of the architecture. An Error names a setting that the format cannot express.
void write_family(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

}  // namespace flatshard
