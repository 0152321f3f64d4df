#pragma once
// What a decoder-only transformer looks like. A family (llama, mistral, qwen2, qwen3, gpt2) is a row of
// choices; a model is a family and its sizes. All code of model/ reads these values and never asks for a
// family by name.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flatshard {

enum class NormKind { rms, layer };
enum class MlpKind { swiglu, gelu_tanh };
enum class PositionKind { rotary, learned };

struct Family {
  std::string name;
  NormKind norm;
  MlpKind mlp;
  PositionKind positions;
  bool qkv_bias;    // a bias on q, k and v
  bool other_bias;  // a bias on every other linear layer
  bool qk_norm;     // RMSNorm over each head of q and k before the rotation
  bool tied;        // output head = token embedding, unless the config says otherwise
  double norm_eps;
  double rope_theta;
  int64_t window;  // sliding window, 0 = none
};

const std::vector<Family>& families();
const Family& family(const std::string& name);  // an Error that lists the names when there is none

struct RopeScalingConfig {
  std::string kind = "none";  // none, linear, llama3
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  int64_t original_max_positions = 8192;
};

struct ModelConfig {
  std::string family = "llama";
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t ffn = 0;       // 0: 4 hidden
  int64_t vocab = 0;
  int64_t max_positions = 0;  // 0: the sequence length of the data
  // What a config leaves open, the family decides.
  std::optional<bool> tied{}, qk_norm{}, qkv_bias{};
  std::optional<double> norm_eps{}, rope_theta{};
  std::optional<int64_t> window{};
  RopeScalingConfig rope_scaling{};

  // Always the family's.
  NormKind norm = NormKind::rms;
  MlpKind mlp = MlpKind::swiglu;
  PositionKind positions = PositionKind::rotary;
  bool other_bias = false;
};

// The config with every open choice filled in, checked. Errors name key, value and bound: a size that is
// missing, heads that do not divide, an odd head size with rotation.
ModelConfig resolved(ModelConfig c);

}  // namespace flatshard
