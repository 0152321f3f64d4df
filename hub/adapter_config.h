#pragma once
// adapter_config.json, which describes a LoRA adapter in the format of Hugging Face PEFT. If a setting
// changes the result of an adapter and LoraConfig lacks it, an Error names file and key. Keys of other
// methods are accepted at their defaults, unknown keys with a warning.

#include <map>
#include <string>
#include <vector>

#include "model/lora.h"

namespace flatshard {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";

struct AdapterConfig {
  // If targets are empty, PEFT's default for the family of the base applies. `init` is irrelevant once an
  // adapter exists; a file with random b matrices (init_lora_weights = false) reads as "kaiming".
  LoraConfig lora;
  std::string base{}, revision{};             // base_model_name_or_path; "": null
  bool fan_in_fan_out = false;                // the base's weights are (in, out)
  std::vector<std::string> parameters{};      // target_parameters
  std::vector<std::string> layers_pattern{};  // path components before the index of a block, such as "layers"
  std::map<std::string, std::string> kept{};  // JSON of keys that are only copied: auto_mapping, ...
};

AdapterConfig read_adapter_config(const std::string& path, std::vector<std::string>& warnings);

// Writes the keys that every version of PEFT reads, sorted. `adapters` are the layers that the config selects
// in a base of this family. The file lists them if PEFT refuses the config's selection, or has other names
// for it.
std::string adapter_config_json(const AdapterConfig& config, const Adapters& adapters,
                                const std::string& family);

}  // namespace flatshard
