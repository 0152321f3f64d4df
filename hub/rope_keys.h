#pragma once
// The keys of rotary positions in a config.json: rope_theta and rope_scaling, as transformers 4 wrote them,
// and rope_parameters of version 5. If a file has both, they must agree.

#include "hub/json_reader.h"
#include "model/config.h"

namespace flatshard {

// `theta` is the default of rope_theta.
void read_rope(const JsonReader& in, double theta, ModelConfig& c);
void write_rope(nlohmann::ordered_json& out, const ModelConfig& c);

}  // namespace flatshard
