#pragma once
// The keys of a config.json that distinguish the layers of a model: layers with a sliding window, and layers
// without rotary positions.

#include "hub/format.h"
#include "model/config.h"
#include "runtime/json_reader.h"

namespace flatshard {

// Reads the window, and the blocks with full attention and without rotary positions. `c` must have the number
// of layers.
void read_layers(const JsonReader& in, const Format& format, ModelConfig& c);
void write_layers(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

}  // namespace flatshard
