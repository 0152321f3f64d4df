#include <algorithm>
#include <optional>
#include <vector>

#include "hub/format.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace flatshard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kSliding[] = "sliding_attention", kFull[] = "full_attention";

// The n for which exactly every n-th layer is marked; 0 if no layer is. Nothing if there is no such n.
std::optional<int64_t> period_of(const std::vector<bool>& marked) {
  int64_t every = 0;
  for (int64_t i = 0; i < std::ssize(marked); ++i) {
    if (every == 0 && marked[static_cast<size_t>(i)]) every = i + 1;
    if (marked[static_cast<size_t>(i)] != (every > 0 && (i + 1) % every == 0)) return {};
  }
  return every;
}

// Stores the marked layers: as every n-th, or as a list if there is no such n.
void set_blocks(const std::vector<bool>& marked, std::optional<int64_t>& every,
                std::vector<int64_t>& blocks) {
  const std::optional<int64_t> period = period_of(marked);
  every = period.value_or(0);
  blocks.clear();
  for (int64_t i = 0; !period && i < std::ssize(marked); ++i)
    if (marked[static_cast<size_t>(i)]) blocks.push_back(i);
}

void set_full(ModelConfig& c, const std::vector<bool>& full) {
  set_blocks(full, c.full_attention_every, c.full_attention_blocks);
}

// Reads layer_types: the layers that have full attention.
std::vector<bool> full_layers(const JsonReader& in, int64_t layers) {
  const json& types = in.value("layer_types");
  bool valid = types.is_array() && std::ssize(types) == layers;
  std::vector<bool> full;
  if (valid)
    for (const json& type : types) {
      valid = valid && (type == kSliding || type == kFull);
      full.push_back(type == kFull);
    }
  in.must(valid, "layer_types", str("\"", kSliding, "\" or \"", kFull, "\" for each of ", layers, " layers"));
  return full;
}

void read_layer_types(const JsonReader& in, const Format& format, ModelConfig& c) {
  const std::vector<bool> full = full_layers(in, c.layers);
  const bool all_full = std::find(full.begin(), full.end(), false) == full.end();
  if (*c.window == 0) return in.must(all_full, "layer_types", str(kFull, " in every layer"));
  in.must(format.layer_types || std::find(full.begin(), full.end(), true) == full.end(), "layer_types",
          str(kSliding, " in every layer"));
  if (all_full) c.window = 0;
  set_full(c, all_full ? std::vector<bool>() : full);
}

// Layers from max_window_layers on have a window.
void read_max_window_layers(const JsonReader& in, ModelConfig& c) {
  const int64_t first = in.has("max_window_layers") ? in.whole("max_window_layers", 0, INT32_MAX) : 28;
  if (first >= c.layers) {
    c.window = 0;
    return;
  }
  std::vector<bool> full;
  for (int64_t i = 0; i < c.layers; ++i) full.push_back(i < first);
  set_full(c, full);
}

// Without layer_types, exactly the layers without rotary positions have a window.
void window_without_rotation(ModelConfig& c) {
  std::vector<bool> full;
  for (int64_t i = 0; i < c.layers; ++i) full.push_back(c.rotates(i));
  set_full(c, full);
}

void read_no_rope(const JsonReader& in, ModelConfig& c) {
  if (!in.has("no_rope_layers")) {
    c.no_rope_every = in.size("no_rope_layer_interval", *c.no_rope_every);
    return;
  }
  const json& rotates = in.value("no_rope_layers");
  bool valid = rotates.is_array() && std::ssize(rotates) >= c.layers;
  std::vector<bool> without;
  for (int64_t i = 0; valid && i < c.layers; ++i) {
    const json& one = rotates[static_cast<size_t>(i)];
    valid = one == 0 || one == 1;
    without.push_back(one == 0);
  }
  in.must(valid, "no_rope_layers", str("0 or 1 for each of ", c.layers, " layers"));
  set_blocks(without, c.no_rope_every, c.no_rope_blocks);
}

}  // namespace

void read_layers(const JsonReader& in, const Format& format, ModelConfig& c) {
  const Family& f = family(c.family);
  c.no_rope_every = f.no_rope_every;
  if (format.no_rope_layers) read_no_rope(in, c);

  const bool off = !format.window || in.is_null("sliding_window") ||
                   (format.window_switch && !in.flag("use_sliding_window", false));
  c.window = off ? 0 : in.has("sliding_window") ? in.size("sliding_window") : *format.window;
  c.full_attention_every = *c.window > 0 ? f.full_attention_every : 0;
  if (in.has("layer_types")) return read_layer_types(in, format, c);
  if (*c.window == 0) return;
  if (format.window_pattern)
    c.full_attention_every = in.size("sliding_window_pattern", *c.full_attention_every);
  if (format.max_window_layers) return read_max_window_layers(in, c);
  if (format.no_rope_layers) window_without_rotation(c);
}

void write_layers(ordered_json& out, const Format& format, const ModelConfig& c) {
  if (format.no_rope_layers)
    for (int64_t i = 0; i < c.layers; ++i) out["no_rope_layers"].push_back(c.rotates(i) ? 1 : 0);
  if (!format.window) return;
  // If layer_types alone can express a missing window, transformers still requires a number.
  const bool needs_number = format.layer_types && !format.window_switch;
  const int64_t window = *c.window == 0 && needs_number ? c.max_positions : *c.window;
  out["sliding_window"] = window > 0 ? ordered_json(window) : ordered_json(nullptr);
  if (format.window_switch) out["use_sliding_window"] = *c.window > 0;
  if (format.max_window_layers) {  // older readers ignore layer_types
    int64_t first = 0;
    while (first < c.layers && c.window_of(first) == 0) ++first;
    out["max_window_layers"] = first;
  }
  if (format.layer_types)
    for (int64_t i = 0; i < c.layers; ++i)
      out["layer_types"].push_back(c.window_of(i) > 0 ? kSliding : kFull);
}

}  // namespace flatshard
