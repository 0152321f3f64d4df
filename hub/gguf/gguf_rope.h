#pragma once
// The rotation of q and k in GGUF files. Keys describe the methods linear and yarn. The other methods have
// tensors with the divisor of each frequency:
//   rope_freqs.weight           llama3
//   rope_factors_short.weight   longrope, for contexts of up to the original positions
//   rope_factors_long.weight    longrope, for longer contexts

#include <string>
#include <vector>

#include "hub/gguf/gguf_file.h"
#include "model/config.h"

namespace flatshard {

struct GgufRopeTensor {
  std::string name;
  std::vector<float> divisors;
};

// The tensors of a model; empty unless its method is llama3 or longrope.
std::vector<GgufRopeTensor> gguf_rope_tensors(const ModelConfig& config);
bool is_gguf_rope_tensor(const std::string& name);

// Writes the keys. Returns notes for the user.
std::vector<std::string> put_gguf_rope(GgufWriter& out, const std::string& prefix, const ModelConfig& config);

// The scaling of the model in a file. `config` must be resolved, have no scaling, and match the other
// tensors. An Error names an unsupported key or tensor.
RopeScalingConfig read_gguf_scaling(const GgufFile& file, const GgufKeys& keys, const ModelConfig& config);

}  // namespace flatshard
