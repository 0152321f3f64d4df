#pragma once
// adapter_base.json, which a run writes beside adapter_config.json, records the base that the adapter was
// trained on. PEFT ignores this file and does not write it.
//   {"folder": "/home/me/models/base", "quantization": {"base": "nf4", ...} or null,
//    "weights": "1,234 bytes with SHA-256 1a2b3c4d5e6f7a8b"}

#include <optional>
#include <string>
#include <vector>

#include "model/quantization.h"

namespace flatshard {

inline constexpr const char* kAdapterBaseName = "adapter_base.json";

struct AdapterBase {
  std::string folder;   // absolute path of a folder or a GGUF file
  std::string weights;  // the fingerprint (runtime/fingerprint.h) of weights_files()
  QuantConfig quant{};  // quantization of the weights in the run; base "none": not quantized
};

std::string adapter_base_json(const AdapterBase& base);
// Returns nothing if the adapter folder has no adapter_base.json. An Error names file and member.
std::optional<AdapterBase> read_adapter_base(const std::string& adapter);

// The files with a model's weights.
std::vector<std::string> weights_files(const std::string& model);

// Advice in an error about a base: a way to name the right base, and a way to use another base anyway.
struct BaseAdvice {
  std::string right, other;
};

// Finds the base of an adapter: the path in adapter_config.json, relative to the current folder. If the run
// recorded its base, the recorded folder and the path relative to the adapter's folder and each folder above
// it are candidates, too, and the first one with the recorded weights is returned. With `other`, returns the
// first one that exists.
std::string find_base(const std::string& adapter, bool other, const BaseAdvice& advice);

// Throws an Error if the adapter folder records different weights from those of `base`.
void check_base(const std::string& adapter, const std::string& base, const BaseAdvice& advice);

}  // namespace flatshard
