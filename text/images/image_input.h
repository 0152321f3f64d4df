#pragma once
// How a model reads images: by which rules, and with which token in its text. The files of its folder say so,
// and token files repeat it, because their tokens depend on it.

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

// Of the models whose config.json has this model_type; nothing if they read no images.
std::optional<ImageFamily> image_family_of(const std::string& model_type);

// Of a model folder of Hugging Face transformers, from its config.json, and processor_config.json or
// preprocessor_config.json; what they leave out is as in transformers 5. Nothing if the folder has no
// config.json or the model reads no images. A `longest_edge` above 0 replaces that of the folder, or in
// qwen2_vl bounds the pixels by its square. An Error names the file.
std::optional<ImageInput> read_image_input(const std::string& folder, int64_t longest_edge = 0);

// As a JSON object on one line, and back: an Error, which follows the name of the file, if that is no such
// object.
std::string to_json(const ImageInput& input);
ImageInput parse_image_input(const std::string& json);

}  // namespace flatshard
