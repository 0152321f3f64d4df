#pragma once
// The keys of a config.json that tell the layers of a model apart: which have a sliding window, and which
// have no rotary positions. A model of flatshard has or lacks them in every n-th layer: an Error names a list
// that is not of this kind.

#include "hub/format.h"
#include "hub/json_reader.h"
#include "model/config.h"

namespace flatshard {

// Reads window, full_attention_every and no_rope_every; `c` has the number of layers.
void read_layers(const JsonReader& in, const Format& format, ModelConfig& c);
void write_layers(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

}  // namespace flatshard
