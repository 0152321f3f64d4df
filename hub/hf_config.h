#pragma once
// config.json of a model folder, as written and read by Hugging Face transformers, for the families of
// model/config.h. Writes the keys of transformers 4 (rope_theta, rope_scaling, torch_dtype), which version 5
// reads too. Reads both versions; if a file has the keys of both, they must agree. An unsupported setting is
// never ignored: an Error names file and key. Dropout and initialization keys are not read.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hub/quantized/quantization_config.h"
#include "model/config.h"
#include "runtime/dtype.h"

namespace flatshard {

// The maximum size of a config.json.
inline constexpr int64_t kMostHfConfigBytes = int64_t{16} << 20;

// The text of config.json for a resolved config. An Error names a setting that the family's format cannot
// express. The ids of special tokens are copied from the config.json at `tokens_of`; if that is "", they are
// null.
std::string hf_config_json(const ModelConfig& config, DType weights, const std::string& tokens_of = "");

// Changes to the text of a config.json: the dtype of the weights, the size of the vocabulary, the
// quantization.
struct HfConfigChanges {
  std::optional<DType> weights{};
  std::optional<int64_t> vocab{};
  std::optional<std::string> quantization{};  // the text of quantization_config; "" removes it
};
std::string changed_hf_config(std::string_view text, const std::string& path, const HfConfigChanges& changes);

// The resolved config that a config.json describes. Sizes are required; other keys default as in
// transformers.
ModelConfig read_hf_config(const std::string& path);
// The quantization_config in the file, if any. read_hf_config() checks it, too, but does not return it.
std::optional<QuantizationConfig> read_quantization_config(const std::string& path);
// Parses the text; errors begin with the path.
ModelConfig parse_hf_config(std::string_view text, const std::string& path);

}  // namespace flatshard
