#pragma once
// The architecture of a decoder-only transformer. A family (llama, mistral, qwen2, qwen3, gpt2) is a set of
// defaults, a model is a family and its sizes. Code in model/ branches on these values, not on the family's
// name.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/four_bit.h"

namespace flatshard {

enum class NormKind { rms, layer };
enum class MlpKind { swiglu, gelu_tanh };
enum class PositionKind { rotary, learned };

struct Family {
  std::string name;
  NormKind norm;
  MlpKind mlp;
  PositionKind positions;
  bool qkv_bias;     // q, k and v projections have a bias
  bool linear_bias;  // the attention output and MLP projections have a bias
  bool qk_norm;      // RMSNorm over each head of q and k before the rotation
  bool tied;         // the output head shares the token embedding
  double norm_eps;
  double rope_theta;
  int64_t window;  // sliding window in tokens, 0: none
};

const std::vector<Family>& families();
const Family& family(const std::string& name);  // throws Error, listing the names, if there is none

struct RopeScalingConfig {
  std::string kind = "none";  // none, linear, llama3
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  int64_t original_max_positions = 8192;
};

// A low-rank adapter of a linear layer (lora.h).
struct Adapter {
  int64_t rank;
  float scale;
  float dropout = 0;
  // Initial values of a: normal with deviation 1 / rank, or uniform within 1 / sqrt(in). b is zero.
  bool gaussian = false;
};
using Adapters = std::map<std::string, Adapter>;  // by the path of the layer

struct ModelConfig {
  std::string family = "llama";
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t ffn = 0;       // 0: 4 hidden
  int64_t vocab = 0;
  int64_t max_positions = 0;  // 0: the sequence length of the data
  // Empty: the default of the family.
  std::optional<bool> tied{}, qk_norm{}, qkv_bias{};
  std::optional<double> norm_eps{}, rope_theta{};
  std::optional<int64_t> window{};
  RopeScalingConfig rope_scaling{};
  Adapters adapters{};
  std::map<std::string, FourBitFormat> quantized{};  // by the path of the layer (quantization.h)
  bool fp32_norms = false;  // the parameters of norms stay fp32 where they are frozen

  // Set by resolved() from the family.
  NormKind norm = NormKind::rms;
  MlpKind mlp = MlpKind::swiglu;
  PositionKind positions = PositionKind::rotary;
  bool linear_bias = false;
};

// The config with all defaults filled in. Throws Error, naming key, value and bound, on a missing or
// excessive size, heads that do not divide, or an odd head size with rotary positions.
ModelConfig resolved(ModelConfig c);

}  // namespace flatshard
