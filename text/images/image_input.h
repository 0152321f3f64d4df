#pragma once
// The image input of a model: the rules by which it reads images, and the token that stands for them in its
// text. The files of the model's folder define it, and token files repeat it, because their tokens depend on
// it.

#include <cstdint>
#include <optional>
#include <string>

#include "text/images/image_rules.h"

namespace flatshard {

struct ImageInput {
  ImageRules rules;
  int32_t token = 0;  // the id of <image>
  bool operator==(const ImageInput&) const = default;
};

// The family of models whose config.json has this model_type; nothing if they read no images.
std::optional<ImageFamily> image_family_of(const std::string& model_type);

// Reads a model folder of Hugging Face transformers: its config.json, and processor_config.json or
// preprocessor_config.json. Absent members have the defaults of transformers 5. Returns nothing if the folder
// has no config.json or the model reads no images. A `longest_edge` above 0 replaces that of the folder; in
// qwen2_vl its square bounds the pixels. An Error names the file.
std::optional<ImageInput> read_image_input(const std::string& folder, int64_t longest_edge = 0);

// Conversions to and from a JSON object on one line. If `json` is no such object, the text of the Error
// follows the name of the file.
std::string to_json(const ImageInput& input);
ImageInput parse_image_input(const std::string& json);

}  // namespace flatshard
