#pragma once
// The config.json of models that read images. It has the objects text_config, vision_config and, in Idefics2,
// perceiver_config beside the keys of the whole model. Files omit keys with the defaults of transformers. In
// Qwen's models, the keys of the text may also be beside these objects, as in published files.

#include "hub/format.h"
#include "model/config.h"
#include "runtime/json_reader.h"

namespace flatshard {

// The name of the object with the keys of the text.
inline constexpr char kTextConfig[] = "text_config";

ModelConfig read_vision_model(const JsonReader& in, const Format& format);
void write_vision_model(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

}  // namespace flatshard
