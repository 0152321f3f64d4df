#pragma once
// The architecture of a decoder-only transformer. A family is a set of defaults, a model is a family and its
// sizes. Code in model/ branches on these values, not on the family's name. ARCHITECTURES.md walks through a
// new family.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/four_bit.h"
#include "kernels/rope.h"

namespace flatshard {

enum class NormKind { rms, layer };
enum class MlpKind { swiglu, geglu, gelu, quick_gelu, clamped_glu };  // geglu and gelu use tanh
enum class PositionKind { rotary, learned };
enum class QkNormWidth { head, all_heads };
// The layers that turn the patches of a frame into rows of the text's width: a resampler with a row for each
// of its latents, or a linear layer or an MLP over squares of patches (vision.h).
enum class ConnectorKind { perceiver, pixel_shuffle, merger };

// The tower of a family that reads images. The defaults describe SigLIP.
struct Tower {
  std::string names = "siglip";  // name table of the parameters (names.h)
  NormKind norm = NormKind::layer;
  MlpKind mlp = MlpKind::gelu;
  bool rotary = false;  // q and k are rotated by row and column; otherwise patches have learned positions
};

// A model family. The defaults describe Llama. The name table of a family (names.h) determines which norms a
// block has and which of its projections are fused.
struct Family {
  std::string name;
  NormKind norm = NormKind::rms;
  double norm_eps = 1e-6;
  float norm_offset = 0;    // added to the weights of RMSNorm
  bool norm_rounds = true;  // RMSNorm rounds x / rms(x) before the product with its weights
  bool qk_norm = false;     // RMSNorm of q and k before the rotation
  QkNormWidth qk_norm_width = QkNormWidth::head;
  MlpKind mlp = MlpKind::swiglu;
  PositionKind positions = PositionKind::rotary;
  double rope_theta = 10000;
  double window_rope_theta = 0;  // theta of blocks with a window, without frequency scaling; 0: rope_theta
  int64_t no_rope_every = 0;     // every n-th block has no rotation; 0: none
  int64_t window = 0;            // sliding window in tokens; 0: none
  int64_t full_attention_every = 0;  // every n-th block has no window; 0: none
  double attention_softcap = 0;      // bound of attention scores; 0: none
  double logit_softcap = 0;          // bound of the logits; 0: none
  double partial_rotary_factor = 1;  // share of each head that is rotated, from its first element on
  bool interleaved_rope = false;     // neighbors are rotated as a pair, not elements half a width apart
  double attention_multiplier = 0;   // factor of attention scores; 0: 1 / sqrt(query_scalar)
  bool embedding_scale = false;      // the embedding is multiplied by sqrt(hidden), rounded to its dtype
  bool qkv_bias = false;             // q, k and v projections have a bias
  bool linear_bias = false;          // the attention output and MLP projections have a bias
  bool tied = false;                 // the output head shares the token embedding
  bool rope_axes = false;            // q and k are rotated by time, row and column (M-RoPE)
  bool experts = false;              // blocks have a mixture of experts in place of the MLP
  bool norm_topk = false;            // the weights of a token's experts add up to 1
  bool shared_expert = false;        // there is an expert for all tokens beside them
  bool shared_gate = false;          // its output is multiplied by a gate of each token
  bool sigmoid_router = false;       // experts are scored by sigmoid, in groups (kernels/route.h)
  double swiglu_limit = 0;           // bound of gate and up, for MlpKind::clamped_glu
  bool sinks = false;                // each head has a sink (kernels/attention_sink.h)
  std::optional<ConnectorKind> connector{};  // connector of models that read images; empty: text only
  Tower tower{};                             // tower of models that read images
};

const std::vector<Family>& families();
const Family& family(const std::string& name);  // throws Error, listing the names, if there is none

struct RopeScalingConfig {
  RopeScaling::Kind kind = RopeScaling::Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  int64_t original_max_positions = 8192;
  double attention_factor = 0;  // factor of cosines and sines; 0: the method's default
  double beta_fast = 32, beta_slow = 1;
  double mscale = 0, mscale_all_dim = 0;  // 0: none
  bool truncate = true;
  std::vector<double> short_factor{}, long_factor{};  // divisors up to the original positions, and beyond

  bool operator==(const RopeScalingConfig&) const = default;
};

// A low-rank adapter of a linear layer (lora.h).
struct Adapter {
  int64_t rank;
  float scale;
  float dropout = 0;
  // Initial values of a: normal with deviation 1 / rank, or uniform within 1 / sqrt(in). b is zero.
  bool gaussian = false;
};
using Adapters = std::map<std::string, Adapter>;  // keys are the paths of layers

// The resampler of a connector.
struct PerceiverConfig {
  int64_t latents = 64, layers = 3, heads = 16, kv_heads = 4, head_dim = 96;
  double norm_eps = 1e-6;
};

// The tower that reads the patches of images, and the connector after it. Images are cut into frames, each of
// which is treated as an image, with image_size / patch_size positions to a side.
struct VisionConfig {
  int64_t layers = 0, hidden = 0, heads = 0, ffn = 0;
  int64_t patch_size = 0, image_size = 0;
  double norm_eps = 1e-6;
  int64_t image_token = 0;      // the token of the text that stands for a row of the connector
  PerceiverConfig perceiver{};  // used only for ConnectorKind::perceiver
  int64_t scale = 2;            // for other connectors: a square of scale x scale patches becomes a row

  // The next three are for a rotary tower, which reads images of any size.
  int64_t repeats = 1;  // repetitions of each channel in a patch, which could be a patch of a video
  int64_t window = 0;   // squares along a side of the windows in which patches attend to each other; 0: none
  std::vector<int64_t> full_attention_blocks{};  // blocks without windows, in ascending order

  // Set by resolved() from the family.
  ConnectorKind connector = ConnectorKind::pixel_shuffle;
  Tower tower{};

  int64_t positions() const { return (image_size / patch_size) * (image_size / patch_size); }
  int64_t patch_width() const { return 3 * repeats * patch_size * patch_size; }
  int64_t axes() const { return tower.rotary ? 2 : 1; }  // axes of the positions of patches
  int64_t square() const { return scale * scale; }       // patches of a square
  bool has_windows(int64_t block) const;
};

struct ModelConfig {
  std::string family = "llama";
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t ffn = 0;       // 0: 4 hidden
  int64_t vocab = 0;
  int64_t max_positions = 0;  // 0: the sequence length of the data
  int64_t context = 0;        // positions in use, which select the factors of longrope; 0: max_positions
  int64_t query_scalar = 0;   // attention scores are divided by its square root; 0: head_dim
  // Empty optionals stand for the default of the family.
  std::optional<bool> tied{}, qk_norm{}, qkv_bias{};
  std::optional<double> norm_eps{}, rope_theta{}, window_rope_theta{}, attention_softcap{}, logit_softcap{};
  std::optional<double> partial_rotary_factor{}, attention_multiplier{};
  double embedding_multiplier = 1, residual_multiplier = 1;  // residual: factor of the output of a half block
  double logit_divisor = 1;
  std::optional<int64_t> window{}, full_attention_every{}, no_rope_every{};
  // Indices of blocks in ascending order, in place of every n-th; empty: every n-th.
  std::vector<int64_t> full_attention_blocks{}, no_rope_blocks{};
  // A mixture of experts (experts.h), for families that have one.
  int64_t experts = 0, experts_per_token = 0;
  int64_t expert_ffn = 0;  // 0: ffn
  int64_t shared_ffn = 0;  // width of the expert that all tokens share; 0: none
  std::optional<bool> norm_topk{};
  double routed_scale = 1;  // factor of the weights of experts
  std::optional<double> swiglu_limit{};
  int64_t expert_groups = 1, top_groups = 1;  // as in RouteRule
  std::vector<int64_t> dense_blocks{};        // blocks that have an MLP instead, in ascending order
  double router_aux_loss = 0;                 // weight of the loss that balances them (kernels/route.h)
  RopeScalingConfig rope_scaling{};
  RopeSections rope_sections{};  // used only for families with rope_axes
  Adapters adapters{};
  std::map<std::string, FourBitFormat> quantized{};  // keys are the paths of layers (quantization.h)
  std::optional<VisionConfig> vision{};              // set only for families that read images
  bool fp32_norms = false;                           // frozen parameters of norms stay fp32

  // Set by resolved() from the family.
  NormKind norm = NormKind::rms;
  float norm_offset = 0;
  bool norm_rounds = true;
  QkNormWidth qk_norm_width = QkNormWidth::head;
  MlpKind mlp = MlpKind::swiglu;
  PositionKind positions = PositionKind::rotary;
  bool embedding_scale = false;
  bool interleaved_rope = false;
  bool linear_bias = false;
  bool sigmoid_router = false;
  bool sinks = false;
  bool causal = true;  // attention is causal

  // These functions require a resolved config.
  int64_t window_of(int64_t block) const;
  bool rotates(int64_t block) const;  // whether q and k are rotated
  RopeScaling scaling() const;
  int64_t rotated_width() const;              // number of rotated elements of a head
  float attention_scale() const;              // factor of attention scores
  bool has_window_rope(int64_t block) const;  // whether a block uses window_rope_theta
  bool has_experts(int64_t block) const;
  int64_t expert_blocks() const;  // number of blocks with experts
};

// The config with all defaults filled in. Throws Error, naming key, value and bound, on a missing or
// excessive size, heads that do not divide, or an odd head size with rotary positions.
ModelConfig resolved(ModelConfig c);

}  // namespace flatshard
