#pragma once
// adapter_base.json, which a run writes beside adapter_config.json: the base that the adapter was trained on.
// PEFT ignores it, and adapters that PEFT made have none.
//   {"folder": "/home/me/models/base", "quantization": {"base": "nf4", ...} or null,
//    "weights": "1,234 bytes with SHA-256 1a2b3c4d5e6f7a8b"}

#include <optional>
#include <string>
#include <vector>

#include "model/quantization.h"

namespace flatshard {

inline constexpr const char* kAdapterBaseName = "adapter_base.json";

struct AdapterBase {
  std::string folder;   // absolute; or a GGUF file
  std::string weights;  // the fingerprint (runtime/fingerprint.h) of weights_files()
  QuantConfig quant{};  // how the run rounded the weights; base "none": not at all
};

std::string adapter_base_json(const AdapterBase& base);
// Nothing if the adapter folder has no such file. An Error names file and member.
std::optional<AdapterBase> read_adapter_base(const std::string& adapter);

// The files with a model's weights.
std::vector<std::string> weights_files(const std::string& model);

// What an error about a base advises: how to name the right one, and how to use another nevertheless.
struct BaseAdvice {
  std::string right, other;
};

// The base of an adapter. It has the path in adapter_config.json, from the current folder; or, if the run
// recorded its base, that folder, or the path from the adapter's folder or one above it: the first with the
// recorded weights. With `other` the first that exists.
std::string find_base(const std::string& adapter, bool other, const BaseAdvice& advice);

// An Error if the adapter folder records other weights than those of `base`.
void check_base(const std::string& adapter, const std::string& base, const BaseAdvice& advice);

}  // namespace flatshard
