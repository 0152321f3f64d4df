#pragma once
// The keys of a config.json that tell the layers of a model apart: which have a sliding window, and which
// have no rotary positions.

#include "hub/format.h"
#include "hub/json_reader.h"
#include "model/config.h"

namespace flatshard {

// Reads window, and the blocks with full attention and without rotary positions; `c` has the number of
// layers.
void read_layers(const JsonReader& in, const Format& format, ModelConfig& c);
void write_layers(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

}  // namespace flatshard
