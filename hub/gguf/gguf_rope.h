#pragma once
// How q and k are rotated, in GGUF files. The methods linear and yarn are described by keys, the others by
// tensors of what each frequency is divided by:
//   rope_freqs.weight           llama3
//   rope_factors_short.weight   longrope, for contexts of up to the original positions
//   rope_factors_long.weight    longrope, for longer contexts

#include <string>
#include <vector>

#include "hub/gguf/gguf_keys.h"
#include "model/config.h"

namespace flatshard {

struct GgufRopeTensor {
  std::string name;
  std::vector<float> divisors;
};

// The tensors of a model; none unless its method is llama3 or longrope.
std::vector<GgufRopeTensor> gguf_rope_tensors(const ModelConfig& config);
bool is_gguf_rope_tensor(const std::string& name);

// Writes the keys. Returns what the user should know.
std::vector<std::string> put_gguf_rope(GgufWriter& out, const std::string& prefix, const ModelConfig& config);

// The scaling of the model in a file. `config` is resolved, without a scaling, and fits the other tensors.
// An Error names the key or tensor that is not supported.
RopeScalingConfig read_gguf_scaling(const GgufFile& file, const GgufKeys& keys, const ModelConfig& config);

}  // namespace flatshard
