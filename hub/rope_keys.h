#pragma once
// The keys of rotary positions in a config.json: rope_theta and rope_scaling, as written by transformers 4,
// and rope_parameters of version 5. If a file has both, they must agree. If layers with a sliding window have
// a base of their own, it is rope_local_base_freq, and rope_parameters has a set for each type of layer.

#include "hub/format.h"
#include "model/config.h"
#include "runtime/json_reader.h"

namespace flatshard {

void read_rope(const JsonReader& in, const Format& format, ModelConfig& c);
void write_rope(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

}  // namespace flatshard
