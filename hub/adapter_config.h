#pragma once
// adapter_config.json, which describes a LoRA adapter in the files of Hugging Face PEFT. A setting that
// changes what an adapter computes and that LoraConfig lacks is an Error that names file and key. Keys of
// other methods are accepted at their defaults, unknown keys with a warning.

#include <map>
#include <string>
#include <vector>

#include "model/lora.h"

namespace flatshard {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";

struct AdapterConfig {
  // No targets: PEFT's default for the family of the base. init is of no use once an adapter exists, and a
  // file with random b matrices (init_lora_weights = false) reads as "kaiming".
  LoraConfig lora;
  std::string base{}, revision{};             // base_model_name_or_path; "": null
  bool fan_in_fan_out = false;                // the base's weights are (in, out)
  std::vector<std::string> layers_pattern{};  // what precedes the index of a block, such as "layers"
  std::map<std::string, std::string> kept{};  // JSON of keys that are only copied: auto_mapping, ...
};

AdapterConfig read_adapter_config(const std::string& path, std::vector<std::string>& warnings);

// The keys that every version of PEFT reads, sorted. `adapters` is what the config chose in a base of this
// family: where PEFT refuses the way the config names them, or has other names for them, the file lists them.
std::string adapter_config_json(const AdapterConfig& config, const Adapters& adapters,
                                const std::string& family);

}  // namespace flatshard
