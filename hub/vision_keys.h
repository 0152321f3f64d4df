#pragma once
// The config.json of models that read images: text_config, vision_config and, of Idefics2, perceiver_config
// are objects within it, beside the keys of the whole model. Files leave out what has the default of
// transformers. The keys of Qwen's text may be beside these too, as they are in published files.

#include "hub/format.h"
#include "hub/json_reader.h"
#include "model/config.h"

namespace flatshard {

// The object of the text's keys.
inline constexpr char kTextConfig[] = "text_config";

ModelConfig read_vision_model(const JsonReader& in, const Format& format);
void write_vision_model(nlohmann::ordered_json& out, const Format& format, const ModelConfig& c);

}  // namespace flatshard
