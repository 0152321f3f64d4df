#pragma once
// The member quantization_config of a config.json, as written by Hugging Face transformers for models whose
// linear layers are quantized to 4 bits by bitsandbytes. The quantized layers and their formats are in the
// files of the weights (quantized_tensors.h); this member adds the dtype of products.

#include <string>
#include <string_view>
#include <vector>

#include "hub/quantized/quant_state.h"

namespace flatshard {

struct QuantizationConfig {
  // The type defaults to fp4, as in bitsandbytes. The file has no block size.
  FourBitFormat format{.kind = FourBitKind::fp4, .compute = DType::f32};
  DType storage = DType::u8;  // declared dtype of the tensors of codes
  // Modules that are not quantized, by their paths or the ends of the paths. If empty, transformers skips the
  // output head; otherwise it skips exactly these modules.
  std::vector<std::string> skip_modules{};
};

// Parses the text of the member. An Error begins with the path of the file. Methods other than bitsandbytes,
// 8-bit weights and unknown values are Errors. Unknown keys are ignored, as in transformers.
QuantizationConfig parse_quantization_config(std::string_view text, const std::string& path);

// The text of the member, with all keys of transformers.
std::string quantization_config_json(const QuantizationConfig& config);

}  // namespace flatshard
