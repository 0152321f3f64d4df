#pragma once
// config.json of a model folder, as Hugging Face transformers writes and reads it, for the families of
// model/config.h. Written is the spelling of transformers 4 (rope_theta, rope_scaling, torch_dtype), which
// version 5 reads as well; read are both, and where a file has both they must agree. What a config says that
// the model here cannot do is an Error that names file and key, never a silent difference. Dropout and
// initialisation belong to training and are not read.

#include <cstdint>
#include <string>
#include <string_view>

#include "model/config.h"
#include "runtime/dtype.h"

namespace flatshard {

// What a config.json may have at most.
inline constexpr int64_t kMostHfConfigBytes = int64_t{16} << 20;

// The text of config.json for a resolved config. An Error names a choice that the family's format cannot say.
// The ids of special tokens, which say where a text ends, are those of the config.json with the path
// `tokens_of`; without one there are none.
std::string hf_config_json(const ModelConfig& config, DType weights, const std::string& tokens_of = "");

// The text of a config.json with another dtype of the weights; all else in it stays as it is.
std::string hf_config_with_dtype(std::string_view text, const std::string& path, DType weights);

// The resolved config that a config.json describes. Sizes must be there; other keys have transformers'
// defaults.
ModelConfig read_hf_config(const std::string& path);
// The same of its text; errors begin with the path.
ModelConfig parse_hf_config(std::string_view text, const std::string& path);

}  // namespace flatshard
